/* tt_spawn(): what a process gets, how it ends, and what the parent is told. */
#include "support/process.h"
#include "support/ranks.h"

#include <tutti/spawn.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MANY = 64 };

/* What processes write and the parent reads. */
typedef struct seen {
    _Atomic int runs, done;
    _Atomic int number[MANY];
    char text[4096];
} seen;

static seen *shared;

static int make_shared(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static int clear_shared(void **state) {
    (void)state;
    memset(shared, 0, sizeof *shared);
    tt_clear_error();
    return 0;
}

static int count_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Nothing of ours is left that could be waited for. */
static void assert_no_child(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

#define assert_error(call, expected, words)      \
    do {                                         \
        assert_int_equal(call, expected);        \
        assert_contains(tt_last_error(), words); \
    } while (0)

/* ---- what a process gets */

static int note_rank(int rank, void *arg) {
    const int *from_parent = arg;
    CHECK(rank >= 0 && rank < MANY);
    atomic_store(&shared->number[rank], from_parent[0] + rank);
    atomic_fetch_add(&shared->runs, 1);
    return 0;
}

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

/* ---- failures */

typedef struct end {
    int rank;
    int (*act)(void);
    _Bool others_stay;
} end;

static int fail_as_told(int rank, void *arg) {
    const end *e = arg;
    crash_as_programs_do();
    if (rank == e->rank)
        return e->act();
    while (e->others_stay)
        pause();
    return 0;
}

static int returns_3(void) { return 3; }
static int returns_256(void) { return 256; }
static int returns_negative(void) { return -7; }
static int exits_5(void) { exit(5); }
static int exits_at_once(void) { _exit(6); }
static int crashes(void) {
    signal(SIGSEGV, SIG_DFL);
    return raise(SIGSEGV);
}
static int is_killed(void) { return raise(SIGKILL); }
static int aborts(void) { abort(); }
static int has_error(void) { return tt_fail(TT_ERR_IO, "can't open %s", "/data") ? 1 : 0; }
static int exits_with_error(void) {
    tt_ignore(tt_fail(TT_ERR_IO, "can't open %s", "/data"));
    exit(4);
}
static int reports(void) {
    tt_ignore(tt_fail(TT_ERR_FORMAT, "no pictures in it"));
    fclose(stderr);
    tt_report();
    _exit(9);
}
static int leaves_thread(void) { pthread_exit(NULL); }

static void fails_with(int (*act)(void), int exit_code, const char *signal_name, tt_status status, const char *text) {
    tt_process_context *c;
    end e = {.rank = 1, .act = act, .others_stay = true};
    char words[512];
    bool all = false;
    int64_t count;
    assert_int_equal(tt_start_processes(&c, fail_as_told, &e, 3), TT_OK);
    const int *pids = tt_process_context_pids(c, &count);
    assert_int_equal(count, 3);
    assert_null(tt_process_context_failure(c));
    assert_int_equal(tt_process_context_join(c, PATIENCE_MS, -1, &all), TT_ERR_PROCESS);
    assert_true(all);
    if (signal_name)
        snprintf(words, sizeof words, "process 1 terminated with signal %s (pid %d)", signal_name, pids[1]);
    else
        snprintf(words, sizeof words, "process 1 terminated with exit code %d (pid %d)", exit_code, pids[1]);
    if (*text)
        snprintf(words + strlen(words), sizeof words - strlen(words), ": %s", text);
    assert_contains(tt_last_error(), words);
    const tt_process_failure *f = tt_process_context_failure(c);
    assert_non_null(f);
    assert_int_equal(f->index, 1);
    assert_int_equal(f->pid, pids[1]);
    assert_int_equal(f->exit_code, exit_code);
    assert_string_equal(f->signal_name ? f->signal_name : "", signal_name ? signal_name : "");
    assert_int_equal(f->status, status);
    assert_string_equal(f->text, text);
    tt_clear_error();
    all = false;
    assert_error(tt_process_context_join(c, 0, -1, &all), TT_ERR_PROCESS, words);
    assert_true(all);
    tt_process_context_free(c);
    assert_no_child();
}

static void each_failure_is_told(void **state) {
    (void)state;
    fails_with(returns_3, 3, NULL, TT_OK, "");
    fails_with(returns_256, 1, NULL, TT_OK, "");
    fails_with(returns_negative, 1, NULL, TT_OK, "");
    fails_with(exits_5, 5, NULL, TT_OK, "");
    fails_with(exits_at_once, 6, NULL, TT_OK, "");
    fails_with(crashes, -SIGSEGV, "SIGSEGV", TT_OK, "");
    fails_with(is_killed, -SIGKILL, "SIGKILL", TT_OK, "");
    fails_with(aborts, -SIGABRT, "SIGABRT", TT_OK, "");
    fails_with(has_error, 1, NULL, TT_ERR_IO, "TT_ERR_IO: can't open /data");
    fails_with(exits_with_error, 4, NULL, TT_ERR_IO, "TT_ERR_IO: can't open /data");
    fails_with(reports, 9, NULL, TT_OK, "TT_ERR_FORMAT: no pictures in it");
}

static void the_ends_that_are_none(void **state) {
    (void)state;
    end e = {.rank = 1, .act = leaves_thread};
    assert_int_equal(tt_spawn(fail_as_told, &e, 2), TT_OK);
}

static void a_long_text_is_cut(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-spawn-XXXXXX";
    close(mkstemp(path));
    setenv("TORCHELASTIC_ERROR_FILE", path, 1); /* of a launcher; the child's report isn't for it */
    end e = {.rank = 0, .act = reports};
    assert_error(tt_spawn(fail_as_told, &e, 1), TT_ERR_PROCESS, "no pictures in it");
    char text[4096];
    assert_string_equal(read_file(path, text, sizeof text), "");
    FILE *kept = stderr;
    stderr = fopen("/dev/null", "w");
    tt_report();
    fclose(stderr);
    stderr = kept;
    assert_contains(read_file(path, text, sizeof text), "TT_ERR_PROCESS: process 0 terminated with exit code 9");
    unsetenv("TORCHELASTIC_ERROR_FILE");
    unlink(path);
}

/* ---- join, grace, kill */

static int ignore_sigterm(int rank, void *arg) {
    (void)arg;
    signal(SIGTERM, SIG_IGN);
    atomic_fetch_add(&shared->runs, 1);
    while (atomic_load(&shared->runs) < 2)
        usleep(1000);
    if (rank == 0)
        return 1;
    for (;;)
        pause();
}

static void one_that_ignores_sigterm_is_killed(void **state) {
    (void)state;
    int64_t before = process_now_ms();
    assert_error(tt_spawn(ignore_sigterm, NULL, 2, .grace_ms = 300), TT_ERR_PROCESS,
                 "process 0 terminated with exit code 1");
    assert_true(process_now_ms() - before >= 300); /* it had its time */
    assert_no_child();
    clear_shared(NULL);
    assert_error(tt_spawn(ignore_sigterm, NULL, 2, .grace_ms = -1), TT_ERR_PROCESS, "process 0");
    assert_no_child();
}

static int end_on_sigterm(int rank, void *arg) {
    (void)arg;
    sigset_t term;
    int sig;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    atomic_fetch_add(&shared->runs, 1);
    while (atomic_load(&shared->runs) < 2)
        usleep(1000);
    if (rank == 0)
        return 1;
    CHECK(!sigwait(&term, &sig));
    atomic_fetch_add(&shared->done, 1);
    return 0;
}

static void others_may_end_cleanly(void **state) {
    (void)state;
    assert_error(tt_spawn(end_on_sigterm, NULL, 2), TT_ERR_PROCESS, "process 0 terminated with exit code 1");
    assert_int_equal(shared->done, 1);
}

static int wait_for_word(int rank, void *arg) {
    (void)arg;
    atomic_fetch_add(&shared->runs, 1);
    while (!atomic_load(&shared->number[rank]))
        usleep(1000);
    return 0;
}

static void join_says_not_yet(void **state) {
    (void)state;
    tt_process_context *c;
    bool all = true;
    assert_int_equal(tt_start_processes(&c, wait_for_word, NULL, 2), TT_OK);
    assert_int_equal(tt_process_context_join(c, 0, -1, &all), TT_OK);
    assert_false(all);
    shared->number[0] = 1;
    assert_int_equal(tt_process_context_join(c, 50, -1, &all), TT_OK);
    assert_false(all);
    shared->number[1] = 1;
    assert_int_equal(tt_process_context_join(c, -1, -1, &all), TT_OK);
    assert_true(all);
    all = false;
    assert_int_equal(tt_process_context_join(c, 0, -1, &all), TT_OK);
    assert_true(all);
    assert_int_equal(tt_process_context_join(c, -1, -1, NULL), TT_OK);
    assert_null(tt_process_context_failure(c));
    tt_process_context_free(c);
}

static void time_runs_out(void **state) {
    (void)state;
    shared->number[0] = 1;
    assert_error(tt_spawn(wait_for_word, NULL, 2, .timeout_ms = 200), TT_ERR_TIMEOUT, "still ran after 200 ms");
    assert_contains(tt_last_error(), "process ");
    assert_no_child();
}

static void kill_and_free_end_them(void **state) {
    (void)state;
    tt_process_context *c;
    assert_int_equal(tt_start_processes(&c, wait_for_word, NULL, 2), TT_OK);
    assert_error(tt_process_context_kill(c, 0), TT_ERR_INVALID, "expected a signal");
    assert_int_equal(tt_process_context_kill(c, SIGSTOP), TT_OK); /* and stopped ones are woken */
    assert_int_equal(tt_process_context_kill(c, SIGINT), TT_OK);
    assert_int_equal(tt_process_context_kill(c, SIGCONT), TT_OK);
    assert_error(tt_process_context_join(c, -1, -1, NULL), TT_ERR_PROCESS, "terminated with signal SIGINT (pid");
    tt_process_context_free(c);
    assert_int_equal(tt_start_processes(&c, wait_for_word, NULL, 3), TT_OK);
    tt_process_context_free(c);
    assert_no_child();
}

static void two_contexts_at_once(void **state) {
    (void)state;
    tt_process_context *a, *b;
    bool all;
    end e = {.rank = 0, .act = returns_3};
    assert_int_equal(tt_start_processes(&a, wait_for_word, NULL, 2), TT_OK);
    assert_int_equal(tt_start_processes(&b, fail_as_told, &e, 2), TT_OK);
    assert_error(tt_process_context_join(b, -1, -1, &all), TT_ERR_PROCESS, "process 0 terminated with exit code 3");
    assert_int_equal(tt_process_context_join(a, 0, -1, &all), TT_OK);
    assert_false(all);
    shared->number[0] = shared->number[1] = 1;
    assert_int_equal(tt_process_context_join(a, -1, -1, &all), TT_OK);
    assert_true(all);
    tt_process_context_free(a);
    tt_process_context_free(b);
}

/* ---- which failure is the cause */

static int fail_because_of_1(int rank, void *arg) {
    const int *second = arg;
    crash_as_programs_do();
    if (rank == *second) {
        shared->done = getpid();
        tt_ignore(tt_fail(TT_ERR_PEER, "rank 1 died"));
        return 1;
    }
    while (!shared->done || !kill(shared->done, 0)) /* the parent has seen the other's end before this one's */
        usleep(1000);
    if (rank == 1)
        return has_error();
    return 0;
}

static void the_guilty_one_is_named(void **state) {
    (void)state;
    int second = 0;
    assert_error(tt_spawn(fail_because_of_1, &second, 3), TT_ERR_PROCESS, "process 1 terminated with exit code 1");
    assert_contains(tt_last_error(), "TT_ERR_IO: can't open /data");
    shared->done = 0;
    assert_error(tt_spawn(fail_because_of_1, &second, 1), TT_ERR_PEER, "process 0 terminated with exit code 1");
    assert_contains(tt_last_error(), "TT_ERR_PEER: rank 1 died");
}

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

static void *spawn_in_thread(void *result) {
    int arg[] = {200}; /* on this thread's stack */
    *(tt_status *)result = tt_spawn(note_rank, arg, 4);
    return NULL;
}

static void any_thread_may_call(void **state) {
    (void)state;
    pthread_t threads[2];
    tt_status results[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, spawn_in_thread, &results[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], TT_OK);
    }
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

/* ---- programs with children of their own */

static void all_ends_are_known(void) {
    static const struct {
        int (*act)(void);
        const char *words;
    } ends[] = {{returns_3, "terminated with exit code 3"},
                {exits_with_error, "terminated with exit code 4"},
                {exits_at_once, "terminated with exit code 6"},
                {is_killed, "terminated with signal SIGKILL"}};
    int arg[] = {0};
    assert_int_equal(tt_spawn(note_rank, arg, 3), TT_OK);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        end e = {.rank = 0, .act = ends[i].act, .others_stay = true};
        assert_int_equal(tt_spawn(fail_as_told, &e, 2), TT_ERR_PROCESS);
        /* older kernels can't tell the last two */
        if (i < 2 || !strstr(tt_last_error(), "an end that is not known"))
            assert_contains(tt_last_error(), ends[i].words);
        assert_contains(tt_last_error(), "process 0 ");
    }
}

static void sigchld_may_be_ignored(void **state) {
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    all_ends_are_known();
    signal(SIGCHLD, SIG_DFL);
}

static void reap_all(int sig) {
    int kept = errno;
    (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        handled++;
    errno = kept;
}

static void a_program_may_reap_its_children(void **state) {
    (void)state;
    struct sigaction reap = {.sa_handler = reap_all}; /* without SA_RESTART: waits are interrupted */
    handled = 0;
    assert_int_equal(sigaction(SIGCHLD, &reap, NULL), 0);
    all_ends_are_known();
    signal(SIGCHLD, SIG_DFL);
    assert_true(handled > 0);
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

/* Root's limit of processes is not looked at: nobody's is. */
static void there_may_be_no_more_processes(void **state) {
    (void)state;
    int ended;
    if (getuid() != 0)
        skip();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct rlimit none = {.rlim_cur = 2, .rlim_max = 2};
        int arg[] = {0};
        alarm(60);
        CHECK(!setrlimit(RLIMIT_NPROC, &none));
        CHECK(!setresuid(54321, 54321, 54321));
        CHECK(tt_spawn(note_rank, arg, 8) == TT_ERR_SYSTEM);
        CHECK_TEXT("can't start process ");
        CHECK_TEXT("ulimit -u");
        CHECK(shared->runs == 0);
        CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_int_equal(ended, 0);
}

#define TEST(name) cmocka_unit_test_setup(name, clear_shared)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_gets_its_rank_and_the_argument),
        TEST(arguments_are_checked),
        TEST(signals_are_as_after_exec),
        TEST(output_appears_once),
        TEST(each_failure_is_told),
        TEST(the_ends_that_are_none),
        TEST(a_long_text_is_cut),
        TEST(one_that_ignores_sigterm_is_killed),
        TEST(others_may_end_cleanly),
        TEST(join_says_not_yet),
        TEST(time_runs_out),
        TEST(kill_and_free_end_them),
        TEST(two_contexts_at_once),
        TEST(the_guilty_one_is_named),
        TEST(processes_can_meet),
        TEST(the_parent_may_have_a_group),
        TEST(any_thread_may_call),
        TEST(processes_survive_the_thread),
        TEST(a_process_may_spawn),
        TEST(a_context_is_its_makers),
        TEST(sigchld_may_be_ignored),
        TEST(a_program_may_reap_its_children),
        TEST(starting_is_all_or_nothing),
        TEST(there_may_be_no_more_processes),
    };
    return cmocka_run_group_tests(tests, make_shared, NULL);
}
