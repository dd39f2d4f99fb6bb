/* What a process of tt_spawn() gets, from where it may be called, and starting where there is too little. */
#include "spawn_cases.h"
#include "unit/alloc_fail.h"

#include "base/build.h"
#include "base/process/threads.h"

#include <semaphore.h>
#include <sys/resource.h>

static void each_gets_its_rank_and_the_argument(void **state) {
    (void)state;
    int arg[] = {100}, before = count_descriptors();
    assert_int_equal(tt_spawn(note_rank, arg, 5), TT_OK);
    assert_int_equal(shared->runs, 5);
    for (int r = 0; r < 5; r++)
        assert_int_equal(shared->number[r], 100 + r);
    assert_int_equal(count_descriptors(), before);
    assert_no_child();
}

static void arguments_are_checked(void **state) {
    (void)state;
    tt_process_context *c = (tt_process_context *)&shared;
    assert_error(tt_spawn(NULL, NULL, 2), TT_ERR_INVALID, "expected a function, got NULL");
    tt_clear_error();
    assert_error(tt_spawn(note_rank, NULL, 0), TT_ERR_INVALID, "expected 1 to 1024 processes, got 0");
    assert_error(tt_spawn(note_rank, NULL, -1), TT_ERR_INVALID, "got -1");
    assert_error(tt_start_processes(&c, note_rank, NULL, 1 << 30), TT_ERR_INVALID, "got 1073741824");
    assert_null(c);
    tt_clear_error();
    assert_error(tt_start_processes(NULL, note_rank, NULL, 1), TT_ERR_INVALID, "a place for it");
    assert_int_equal(tt_spawn_with(NULL, 0), TT_ERR_INVALID);
    assert_int_equal(tt_process_context_join(NULL, 0, 0, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_process_context_kill(NULL, SIGTERM), TT_ERR_INVALID);
    assert_null(tt_process_context_failure(NULL));
    assert_null(tt_process_context_pids(NULL, NULL));
    tt_process_context_free(NULL);
}

static int count_threads(int rank, void *arg) {
    (void)rank;
    (void)arg;
    /* The other one is ours: a group sees a program that can't do two things. Sanitizers have some of their own. */
    CHECK(getenv("TT_SANITIZED") || tt__program_threads() == 1);
    return 0;
}

static void the_programs_thread_is_one(void **state) {
    (void)state;
    assert_int_equal(tt_spawn(count_threads, NULL, 1), TT_OK);
}

static int close_descriptors(int rank, void *arg) {
    struct rlimit none = {0};
    int *reused = arg;
    (void)rank;
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    CHECK((reused[0] = open("/dev/null", O_RDONLY)) >= 0); /* always readable */
    CHECK(!setrlimit(RLIMIT_NOFILE, &none));
    usleep(300000);
    return 0;
}

/* As daemons and sandboxes do. It is no end of the parent's. */
static void a_process_may_close_all_descriptors(void **state) {
    (void)state;
    int reused;
    assert_int_equal(tt_spawn(close_descriptors, &reused, 2), TT_OK);
}

static void *read_stdin(void *got) {
    *(int *)got = getchar();
    return NULL;
}

/* Who waits for input holds the stream's lock, which flushing all streams would wait for. */
static void somebody_may_read_stdin(void **state) {
    (void)state;
    int ends[2], arg[] = {0}, got = 0, kept = dup(STDIN_FILENO);
    pthread_t reader;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(pthread_create(&reader, NULL, read_stdin, &got), 0);
    while (ftrylockfile(stdin) == 0) {
        funlockfile(stdin);
        usleep(1000);
    }
    assert_int_equal(tt_spawn(note_rank, arg, 2), TT_OK);
    assert_int_equal(write(ends[1], "q", 1), 1);
    pthread_join(reader, NULL);
    assert_int_equal(got, 'q');
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t handled;
static void handle(int sig) { handled = sig; }

static int look_at_signals(int rank, void *arg) {
    struct sigaction usr1, usr2, hup;
    sigset_t mask;
    (void)arg;
    CHECK(!sigaction(SIGUSR1, NULL, &usr1) && usr1.sa_handler == SIG_DFL);
    CHECK(!sigaction(SIGUSR2, NULL, &usr2) && usr2.sa_handler == SIG_DFL);
    CHECK(!sigaction(SIGHUP, NULL, &hup) && hup.sa_handler == SIG_IGN);
    CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &mask));
    CHECK(sigismember(&mask, SIGWINCH) && !sigismember(&mask, SIGTERM) && !sigismember(&mask, SIGUSR1));
    return rank == -1;
}

static void handle_more(int sig, siginfo_t *info, void *context) {
    (void)info;
    (void)context;
    handled = sig;
}

static void signals_are_as_after_exec(void **state) {
    (void)state;
    struct sigaction more = {.sa_sigaction = handle_more, .sa_flags = SA_SIGINFO};
    sigset_t one, before, after;
    sigemptyset(&one);
    sigaddset(&one, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    signal(SIGUSR1, handle);
    assert_int_equal(sigaction(SIGUSR2, &more, NULL), 0);
    void (*hup)(int) = signal(SIGHUP, SIG_IGN);
    assert_int_equal(tt_spawn(look_at_signals, NULL, 1), TT_OK);
    raise(SIGUSR1);
    assert_int_equal(handled, SIGUSR1); /* the parent keeps its own */
    pthread_sigmask(SIG_SETMASK, &before, &after);
    assert_true(sigismember(&after, SIGWINCH) && !sigismember(&after, SIGTERM));
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    signal(SIGHUP, hup);
}

/* ---- output, and handlers of exit() */

static void parents_handler(void) {
    if (getpid() != *(pid_t *)shared->text)
        atomic_fetch_add(&shared->done, 1000);
}

static void childs_handler(void) { atomic_fetch_add(&shared->done, 1); }

static FILE *log_file;

static int print_and_end(int rank, void *arg) {
    (void)arg;
    CHECK(!atexit(childs_handler));
    fprintf(log_file, "child %d\n", rank);
    if (rank == 1)
        exit(0);
    return 0;
}

static void output_appears_once(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-spawn-XXXXXX", text[256];
    int fd = mkstemp(path);
    pid_t self = getpid();
    memcpy(shared->text, &self, sizeof self);
    assert_int_equal(atexit(parents_handler), 0);
    log_file = fdopen(fd, "a");
    assert_non_null(log_file);
    fprintf(log_file, "parent\n");
    assert_int_equal(tt_spawn(print_and_end, NULL, 3), TT_OK);
    fclose(log_file);
    read_file(path, text, sizeof text);
    unlink(path);
    assert_int_equal(count_of(text, "parent\n"), 1);
    for (int r = 0; r < 3; r++) {
        char line[16];
        snprintf(line, sizeof line, "child %d\n", r);
        assert_int_equal(count_of(text, line), 1);
    }
    assert_int_equal(shared->done, 3); /* each child's handler, none of the parent's */
}

/* ---- groups */

static int fail_in_group(int rank, void *arg) {
    tt_group *world = NULL;
    float x = 1;
    CHECK_OK(tt_init_process_group(&world, .timeout_ms = PATIENCE_MS));
    CHECK(tt_get_rank(world) == rank && tt_get_world_size(world) == 3);
    CHECK_OK(tt_all_reduce(world, &x, 1, TT_F32, TT_SUM));
    CHECK(x == 3);
    if (rank == 2 && arg)
        raise(SIGKILL);
    if (tt_all_reduce(world, &x, 1, TT_F32, TT_SUM))
        return 1;
    tt_destroy_process_group(world);
    return 0;
}

static void processes_can_meet(void **state) {
    (void)state;
    assert_int_equal(tt_spawn(fail_in_group, NULL, 3, .rendezvous = true), TT_OK);
    assert_null(getenv("RANK"));
    for (int i = 0; i < 3; i++)
        assert_error(tt_spawn(fail_in_group, shared, 3, .rendezvous = true), TT_ERR_PROCESS,
                     "process 2 terminated with signal SIGKILL");
}

static int use_inherited(int rank, void *arg) {
    tt_group *inherited = arg;
    CHECK(tt_barrier(inherited) == TT_ERR_STATE);
    CHECK_TEXT("was forked by rank 0");
    tt_destroy_process_group(inherited);
    return fail_in_group(rank, NULL);
}

static void the_parent_may_have_a_group(void **state) {
    (void)state;
    tt_group *own;
    float x = 5;
    assert_int_equal(tt_init_process_group(&own, .init_method = "tcp://127.0.0.1:0", .rank = 0, .world_size = 1),
                     TT_OK);
    assert_int_equal(tt_spawn(use_inherited, own, 3, .rendezvous = true), TT_OK);
    assert_int_equal(tt_all_reduce(own, &x, 1, TT_F32, TT_SUM), TT_OK);
    assert_true(x == 5);
    tt_destroy_process_group(own);
}

/* ---- where it is called from */

static sem_t may_spawn;

static void *spawn_in_thread(void *result) {
    int arg[] = {200}; /* on this thread's stack */
    sem_wait(&may_spawn);
    *(tt_status *)result = tt_spawn(note_rank, arg, 4);
    return NULL;
}

/* Two at once; one after the other under the address sanitizer, whose allocator doesn't survive a fork while another
 * thread is in it. */
static void any_thread_may_call(void **state) {
    (void)state;
    enum { AT_ONCE = TT__ASAN ? 1 : 2 };
    tt_status results[2];
    assert_int_equal(sem_init(&may_spawn, 0, 0), 0);
    for (int first = 0; first < 2; first += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, spawn_in_thread, &results[first + i]), 0);
        for (int i = 0; i < AT_ONCE; i++)
            sem_post(&may_spawn);
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], NULL);
    }
    sem_destroy(&may_spawn);
    for (int i = 0; i < 2; i++)
        assert_int_equal(results[i], TT_OK);
    assert_int_equal(shared->runs, 8);
    for (int r = 0; r < 4; r++)
        assert_int_equal(shared->number[r], 200 + r);
}

static tt_process_context *from_thread;

static void *start_in_thread(void *unused) {
    (void)unused;
    assert_int_equal(tt_start_processes(&from_thread, wait_for_word, NULL, 2), TT_OK);
    return NULL;
}

/* The kernel would signal the end of the thread that forked as that of the parent. */
static void processes_survive_the_thread(void **state) {
    (void)state;
    pthread_t thread;
    bool all;
    assert_int_equal(pthread_create(&thread, NULL, start_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(tt_process_context_join(from_thread, 200, -1, &all), TT_OK);
    assert_false(all);
    shared->number[0] = shared->number[1] = 1;
    assert_int_equal(tt_process_context_join(from_thread, -1, -1, &all), TT_OK);
    assert_true(all);
    tt_process_context_free(from_thread);
}

static int spawn_again(int rank, void *arg) {
    const end *e = arg;
    int base[] = {10 * rank};
    if (rank == 0)
        return tt_spawn(note_rank, base, 2);
    return tt_spawn(fail_as_told, (void *)(uintptr_t)e, 2);
}

static void a_process_may_spawn(void **state) {
    (void)state;
    end e = {.rank = 1, .act = exits_with_error};
    assert_error(tt_spawn(spawn_again, &e, 2), TT_ERR_PROCESS, "process 1 terminated with exit code");
    assert_contains(tt_last_error(), "TT_ERR_PROCESS: process 1 terminated with exit code 4");
    assert_contains(tt_last_error(), "TT_ERR_IO: can't open /data");
    assert_int_equal(tt_spawn(spawn_again, &e, 1), TT_OK);
    assert_int_equal(shared->runs, shared->number[1] == 1 ? shared->runs : -1);
}

static int use_anothers_context(int rank, void *arg) {
    tt_process_context *c = arg;
    (void)rank;
    CHECK(tt_process_context_join(c, 0, 0, NULL) == TT_ERR_STATE);
    CHECK_TEXT("the context is process");
    CHECK(tt_process_context_kill(c, SIGKILL) == TT_ERR_STATE);
    tt_process_context_free(c);
    return 0;
}

static void a_context_is_its_makers(void **state) {
    (void)state;
    tt_process_context *c;
    bool all = true;
    assert_int_equal(tt_start_processes(&c, wait_for_word, NULL, 1), TT_OK);
    assert_int_equal(tt_spawn(use_anothers_context, c, 1), TT_OK);
    assert_int_equal(tt_process_context_join(c, 0, -1, &all), TT_OK);
    assert_false(all);
    shared->number[0] = 1;
    assert_int_equal(tt_process_context_join(c, -1, -1, &all), TT_OK);
    assert_true(all);
    tt_process_context_free(c);
}

/* ---- where there is too little of something */

/* Take all descriptors but `left`. Returns how many were taken. */
static int take_descriptors(int *taken, int most, int left) {
    int n = 0;
    while (n < most && (taken[n] = dup(STDIN_FILENO)) >= 0)
        n++;
    assert_int_equal(errno, EMFILE);
    while (left-- > 0)
        close(taken[--n]);
    return n;
}

static void starting_is_all_or_nothing(void **state) {
    (void)state;
    struct rlimit before, few;
    int arg[] = {0}, taken[1024], left = 0, n;
    tt_status status;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 512, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int descriptors = count_descriptors();; left++) {
        n = take_descriptors(taken, 1024, left);
        status = tt_spawn(note_rank, arg, 4);
        while (n > 0)
            close(taken[--n]);
        assert_no_child();
        assert_int_equal(count_descriptors(), descriptors);
        if (!status)
            break;
        assert_int_equal(status, TT_ERR_SYSTEM);
        assert_contains(tt_last_error(), "ulimit -n");
        assert_int_equal(shared->runs, 0);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(left, 2 + 4);
    assert_int_equal(shared->runs, 4);
}

static tt_status spawn_two(void *arg) { return tt_spawn(note_rank, arg, 2); }

static void memory_may_run_out(void **state) {
    (void)state;
    int arg[] = {0};
    int rounds = alloc_fail_each(spawn_two, arg, ALLOC_ENDS);
    assert_true(rounds > 4 || !alloc_count_works); /* the context's four, and none; a sanitizer has its own malloc */
    assert_no_child();
}

/* Root's limit of processes is not looked at: nobody's is. */
static void there_may_be_no_more_processes(void **state) {
    (void)state;
    int ended;
    if (getuid() != 0)
        skip();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        const bool sanitized = getenv("TT_SANITIZED"); /* which may have a thread of its own in each process */
        struct rlimit few = {.rlim_cur = sanitized ? 4 : 2, .rlim_max = 4};
        uid_t nobody = (uid_t)getpid() + 2000000; /* whose processes are this test's alone */
        int arg[] = {0};
        alarm(60);
        CHECK(!setrlimit(RLIMIT_NPROC, &few));
        if (setresuid(nobody, nobody, nobody))
            _exit(errno == EINVAL ? 77 : 1); /* a user namespace without such users */
        CHECK(tt_spawn(note_rank, arg, 8) == TT_ERR_SYSTEM);
        CHECK_TEXT("can't start process ");
        CHECK_TEXT("ulimit -u");
        CHECK(shared->runs == 0);
        CHECK(sanitized || tt_spawn(note_rank, arg, 1) == TT_ERR_PROCESS); /* a process, but no thread */
        CHECK(sanitized || strstr(tt_last_error(), "process 0 terminated with exit code 1 (pid "));
        CHECK(sanitized || strstr(tt_last_error(), "TT_ERR_SYSTEM: can't start the thread of the function"));
        CHECK_TEXT("ulimit -u");
        CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 77)
        skip();
    assert_int_equal(ended, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_gets_its_rank_and_the_argument),
        TEST(arguments_are_checked),
        TEST(the_programs_thread_is_one),
        TEST(a_process_may_close_all_descriptors),
        TEST(somebody_may_read_stdin),
        TEST(signals_are_as_after_exec),
        TEST(output_appears_once),
        TEST(processes_can_meet),
        TEST(the_parent_may_have_a_group),
        TEST(any_thread_may_call),
        TEST(processes_survive_the_thread),
        TEST(a_process_may_spawn),
        TEST(a_context_is_its_makers),
        TEST(starting_is_all_or_nothing),
        TEST(memory_may_run_out),
        TEST(there_may_be_no_more_processes),
    };
    return cmocka_run_group_tests(tests, make_shared, NULL);
}
