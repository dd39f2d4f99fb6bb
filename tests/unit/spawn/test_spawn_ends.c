/* How processes of tt_spawn() end, what the parent is told of it, and waiting for them. */
#include "spawn_cases.h"

#include <sys/resource.h>

/* ---- failures */

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
    assert_int_equal(f->rank, 1);
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

static void *kill_when_all_run(void *context) {
    while (atomic_load(&shared->runs) < 2)
        usleep(1000);
    assert_int_equal(tt_process_context_kill(context, SIGQUIT), TT_OK);
    return NULL;
}

static void another_thread_may_kill(void **state) {
    (void)state;
    tt_process_context *c;
    pthread_t killer;
    struct rlimit none = {0}, before;
    assert_int_equal(getrlimit(RLIMIT_CORE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_CORE, &none), 0);
    assert_int_equal(tt_start_processes(&c, wait_for_word, NULL, 2), TT_OK);
    assert_int_equal(pthread_create(&killer, NULL, kill_when_all_run, c), 0);
    assert_error(tt_process_context_join(c, -1, -1, NULL), TT_ERR_PROCESS, "terminated with signal SIGQUIT (pid");
    pthread_join(killer, NULL);
    tt_process_context_free(c);
    assert_int_equal(setrlimit(RLIMIT_CORE, &before), 0);
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
        if (i < 2 || !strstr(tt_last_error(), "in a way that is not known"))
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

static bool older_kernel;

/* The linker gives all calls of ioctl() in this program to it. */
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument) {
    if (!older_kernel)
        return __real_ioctl(fd, request, argument);
    errno = ENOTTY;
    return -1;
}

/* What the process itself has left is known; its signals and _exit() are not, and are no success. */
static void older_kernels_know_less(void **state) {
    (void)state;
    int arg[] = {0};
    tt_process_context *c;
    end e = {.rank = 1, .act = exits_at_once};
    signal(SIGCHLD, SIG_IGN);
    older_kernel = true;
    assert_int_equal(tt_spawn(note_rank, arg, 3), TT_OK);
    assert_int_equal(tt_start_processes(&c, fail_as_told, &e, 2), TT_OK);
    assert_error(tt_process_context_join(c, -1, -1, NULL), TT_ERR_PROCESS,
                 "process 1 terminated in a way that is not known, as the program ignores SIGCHLD");
    assert_int_equal(tt_process_context_failure(c)->exit_code, TT_EXIT_CODE_UNKNOWN);
    assert_null(tt_process_context_failure(c)->signal_name);
    tt_process_context_free(c);
    e.act = exits_with_error;
    assert_error(tt_spawn(fail_as_told, &e, 2), TT_ERR_PROCESS, "process 1 terminated with exit code 4");
    older_kernel = false;
    signal(SIGCHLD, SIG_DFL);
}

static volatile sig_atomic_t reaped;

static void reap_all(int sig) {
    int kept = errno;
    (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        reaped++;
    errno = kept;
}

static void a_program_may_reap_its_children(void **state) {
    (void)state;
    struct sigaction reap = {.sa_handler = reap_all}; /* without SA_RESTART: waits are interrupted */
    reaped = 0;
    assert_int_equal(sigaction(SIGCHLD, &reap, NULL), 0);
    all_ends_are_known();
    signal(SIGCHLD, SIG_DFL);
    assert_true(reaped > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_failure_is_told),    TEST(the_ends_that_are_none),
        TEST(a_long_text_is_cut),      TEST(one_that_ignores_sigterm_is_killed),
        TEST(others_may_end_cleanly),  TEST(join_says_not_yet),
        TEST(time_runs_out),           TEST(kill_and_free_end_them),
        TEST(another_thread_may_kill), TEST(two_contexts_at_once),
        TEST(the_guilty_one_is_named), TEST(sigchld_may_be_ignored),
        TEST(older_kernels_know_less), TEST(a_program_may_reap_its_children),
    };
    return cmocka_run_group_tests(tests, make_shared, NULL);
}
