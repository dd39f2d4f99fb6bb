/* A rank of a job dies or freezes: the other's error names it, the launcher's report too, and nothing is left. One that
 * is stopped for less than the heartbeat, however often, ends no job: TT_STORM_SECONDS=N does that to 64 ranks. */
#include "support/process.h"
#include "support/storm.h"

#include <tutti/store.h>

/* The job is to end soon. */
enum { SOON_MS = 5000 };

/* `settle`: how long the survivor has to end by itself. */
static process *start_job(char *program, size_t size, const char *settle, const char *heartbeat_ms) {
    const char *programs = getenv("TT_PROGRAMS");
    snprintf(program, size, "%s/reduce_forever", programs);
    process *p = start_tutti("run", "--standalone", "--nproc-per-node=2", settle, program, heartbeat_ms);
    process_expect(p, 0, ".\n", 2);
    return p;
}

static pid_t pid_of(const process *p, int rank) {
    char text[32];
    snprintf(text, sizeof text, "rank %d is pid ", rank);
    const char *at = strstr(p->text[0], text);
    assert_non_null(at);
    return (pid_t)atoi(at + strlen(text));
}

static void a_killed_rank_is_the_first_failure(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        char program[4096], text[128];
        process *p = start_job(program, sizeof program, "--settle-period=30", NULL);
        int64_t start = process_now_ms();
        kill(pid_of(p, rank), SIGKILL);
        process_finish(p);
        assert_in_range(process_now_ms() - start, 0, SOON_MS + leeway_ms());
        snprintf(text, sizeof text, "tutti run: rank %d failed first: killed by SIGKILL (signal 9)", rank);
        assert_contains(p->text[1], text);
        snprintf(text, sizeof text, "tutti run: rank %d: exit code 1, because of another rank: ", 1 - rank);
        const char *other = strstr(p->text[1], text);
        assert_non_null(other);
        snprintf(text, sizeof text, "rank %d (pid ", rank);
        assert_contains(other, text);
        assert_contains(other, ") ended with signal 9 (SIGKILL), while rank ");
        assert_int_equal(p->code, 137);
        process_free(p);
    }
}

/* Over TCP only the connection's end is seen; how the process ended, the launcher knows. */
static void a_killed_rank_over_tcp_is_told_with_its_signal(void **state) {
    (void)state;
    char program[4096];
    setenv("TT_TRANSPORT", "tcp", 1);
    process *p = start_job(program, sizeof program, "--settle-period=30", NULL);
    unsetenv("TT_TRANSPORT");
    kill(pid_of(p, 1), SIGKILL);
    process_finish(p);
    const char *other = strstr(p->text[1], "tutti run: rank 0: exit code 1, because of another rank: ");
    assert_non_null(other);
    assert_contains(other, "rank 1 ended with signal 9 (SIGKILL): ");
    assert_int_equal(p->code, 137);
    process_free(p);
}

/* Also where the ranks don't meet in the launcher's store, in which it notes how they end. */
static void a_killed_rank_is_told_with_its_signal_wherever_the_ranks_meet(void **state) {
    (void)state;
    const char *programs = getenv("TT_PROGRAMS");
    char folder[64], program[4096];
    snprintf(program, sizeof program,
             "TT_INIT_METHOD=\"file://%s/meet?rank=$RANK&world_size=2\" exec %s/reduce_forever",
             temporary_folder(folder), programs);
    process *p = start_tutti("run", "--standalone", "--nproc-per-node=2", "--settle-period=30", "sh", "-c", program);
    process_expect(p, 0, ".\n", 2);
    kill(pid_of(p, 1), SIGKILL);
    process_finish(p);
    assert_contains(p->text[1], ") ended with signal 9 (SIGKILL), while rank ");
    process_free(p);
    remove_folder(folder);
}

/* Only the rank that noticed ended by itself, so its text is the report, and names the frozen one. */
static void a_frozen_rank_is_named(void **state) {
    (void)state;
    char program[4096];
    process *p = start_job(program, sizeof program, "--settle-period=0.1", "500");
    int64_t start = process_now_ms();
    kill(pid_of(p, 1), SIGSTOP);
    process_finish(p);
    assert_in_range(process_now_ms() - start, 0, SOON_MS + leeway_ms());
    const char *report = strstr(p->text[1], "tutti run: rank 0 failed because of another rank: exit code 1");
    assert_non_null(report);
    report = strstr(report, "its message:\n");
    assert_non_null(report);
    assert_contains(report, "rank 1 (pid ");
    assert_contains(report, "tutti run: rank 1: killed by SIGTERM (signal 15), after tutti sent SIGTERM");
    assert_int_equal(p->code, 1);
    process_free(p);
}

/* Ranks that wait for one that ended before it joined learn of it from the launcher, wherever they meet. */
static void end_before_joining(const char *where) {
    const char *programs = getenv("TT_PROGRAMS");
    char program[4096];
    snprintf(program, sizeof program, "%s test $RANK = 1 || exec %s/reduce_forever", where, programs);
    process *p = start_tutti("run", "--standalone", "--nproc-per-node=3", "--settle-period=30", "sh", "-c", program);
    process_finish(p);
    assert_contains(p->text[1], "rank 1 ended with exit code 0 before it joined");
    assert_int_equal(p->code, 1);
    process_free(p);
}

static void a_rank_that_ends_before_it_joins_is_named(void **state) {
    char path[64], where[160];
    (void)state;
    end_before_joining("");
    snprintf(path, sizeof path, "/tmp/tutti-run-ranks-%d", (int)getpid());
    snprintf(where, sizeof where, "export TT_INIT_METHOD='file://%s?world_size=3&rank='$RANK;", path);
    end_before_joining(where);
    unlink(path);
}

/* It had told where it is, but another rank not yet: those that wait for that one learn of its end. */
static void a_rank_that_ends_before_all_have_joined_is_named(void **state) {
    (void)state;
    const char *programs = getenv("TT_PROGRAMS");
    char program[4096];
    tt_store *store = NULL;
    snprintf(program, sizeof program,
             "echo rank $RANK is pid $$ at port $MASTER_PORT.; test $RANK = 2 && exec sleep 1000; "
             "exec %s/reduce_forever",
             programs);
    process *p = start_tutti("run", "--standalone", "--nproc-per-node=3", "--settle-period=60", "sh", "-c", program);
    process_expect(p, 0, ".\n", 3);
    int port = atoi(strstr(p->text[0], " at port ") + strlen(" at port "));
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", port, .timeout_ms = PATIENCE_MS), TT_OK);
    assert_int_equal(tt_store_wait(store, (const char *const[]){"tutti/0/1/rank/0", "tutti/0/1/rank/1"}, 2, 0), TT_OK);
    tt_store_free(store);
    kill(pid_of(p, 1), SIGKILL);
    process_expect(p, 1, "rank 1 ended with signal 9 (SIGKILL) before all had joined", 1);
    kill(pid_of(p, 2), SIGKILL);
    process_finish(p);
    assert_contains(p->text[1], "tutti run: rank 1 failed first: killed by SIGKILL (signal 9)");
    assert_int_equal(p->code, 137);
    process_free(p);
}

/* A rank that is stopped before it has told anybody where it is: the launcher knows its process. */
static void a_rank_that_is_frozen_before_it_joins_is_named(void **state) {
    (void)state;
    const char *programs = getenv("TT_PROGRAMS");
    char program[4096];
    snprintf(program, sizeof program, "test $RANK != 1 || kill -STOP $$; exec %s/reduce_forever 1000", programs);
    process *p = start_tutti("run", "--standalone", "--nproc-per-node=3", "--settle-period=1", "--grace-period=1", "sh",
                             "-c", program);
    process_finish(p);
    assert_contains(p->text[1], "rank 1 (pid ");
    assert_contains(p->text[1], ") is frozen: stopped by a signal for ");
    assert_contains(p->text[1], " ms, before it joined");
    assert_int_equal(p->code, 1);
    process_free(p);
}

/* Stop a rank for stop_ms, and let it run for run_ms; returns for how long it was stopped at most. */
static int64_t stop_shortly(pid_t pid, int64_t stop_ms, int64_t run_ms) {
    int64_t begin = process_now_ms();
    kill(pid, SIGSTOP);
    usleep((useconds_t)stop_ms * 1000);
    kill(pid, SIGCONT);
    int64_t stopped = process_now_ms() - begin;
    usleep((useconds_t)run_ms * 1000);
    return stopped;
}

/* Of ranks that reduce all the time, the others look at one only while they wait for it, as while it is stopped. */
static void short_stops_end_no_job(void **state) {
    (void)state;
    const char *programs = getenv("TT_PROGRAMS");
    long seconds = storm_number("TT_STORM_SECONDS", 0);
    int64_t heartbeat_ms = seconds ? 5000 : 1000, longest = 0, until_ms;
    int world = seconds ? 64 : 3;
    char program[4096], ranks[40], heartbeat[16];
    uint64_t draw = storm_case(0);
    snprintf(program, sizeof program, "%s/reduce_forever", programs);
    snprintf(ranks, sizeof ranks, "--nproc-per-node=%d", world);
    snprintf(heartbeat, sizeof heartbeat, "%d", (int)heartbeat_ms);
    process *p = start_tutti("run", "--standalone", ranks, program, heartbeat);
    process_expect(p, 0, ".\n", world);
    until_ms = process_now_ms() + (seconds ? seconds * 1000 : 3 * heartbeat_ms / 2);
    while (process_now_ms() < until_ms && longest < heartbeat_ms * 3 / 4 && !strstr(p->text[1], "frozen")) {
        int rank = seconds ? (int)storm_below(&draw, (size_t)world) : 1;
        int64_t stopped = seconds ? stop_shortly(pid_of(p, rank), 1 + (int64_t)storm_below(&draw, 1200), 2000)
                                  : stop_shortly(pid_of(p, rank), 90, 10);
        longest = stopped > longest ? stopped : longest;
        process_read(p, 0);
    }
    kill(p->pid, SIGTERM);
    process_finish(p);
    bool goes_on = !strstr(p->text[1], "frozen") && p->code == 128 + SIGTERM;
    if (!goes_on && longest < heartbeat_ms * 3 / 4) /* else this test stood still itself, amid a stop */
        fail_msg("stops of at most %lld ms: code %d, \"%s\"", (long long)longest, p->code, p->text[1]);
    process_free(p);
}

/* The others wait for another round, which can't come. */
static void elastic_ranks_without_restarts_wait_for_nothing(void **state) {
    (void)state;
    const char *programs = getenv("TT_PROGRAMS");
    char program[4096];
    snprintf(program, sizeof program, "%s/reduce_forever", programs);
    for (int frozen = 0; frozen < 2; frozen++) {
        process *p = start_tutti("run", "--standalone", "--nproc-per-node=3", "--settle-period=0.1", program,
                                 frozen ? "500" : "60000", "elastic");
        process_expect(p, 0, ".\n", 3);
        int64_t start = process_now_ms();
        kill(pid_of(p, 1), frozen ? SIGSTOP : SIGUSR2);
        process_finish(p);
        assert_in_range(process_now_ms() - start, 0, SOON_MS + leeway_ms());
        const char *message = strstr(p->text[1], "  its message:\n    rank 1 (pid ");
        assert_non_null(message);
        assert_contains(message, frozen ? ") is frozen: stopped by a signal for " : ") ended with exit code 0");
        assert_contains(message, "; no round follows: no restarts are left (tutti run --max-restarts)");
        assert_int_equal(p->code, 1);
        process_free(p);
    }
}

/* It has not said yet that it survives the loss of others, as these have. */
static void an_elastic_rank_that_is_frozen_before_it_joins_is_replaced(void **state) {
    (void)state;
    const char *programs = getenv("TT_PROGRAMS");
    char program[4096];
    snprintf(program, sizeof program,
             "test $RANK$TORCHELASTIC_RESTART_COUNT != 10 || kill -STOP $$; exec %s/reduce_forever 1000 elastic",
             programs);
    process *p = start_tutti("run", "--standalone", "--nproc-per-node=3", "--max-restarts=1", "--grace-period=5", "sh",
                             "-c", program);
    process_expect(p, 0, ".\n", 3);
    process_expect(p, 1, "; replacing what is lost, the other ranks go on", 1);
    kill(p->pid, SIGTERM);
    process_finish(p);
    assert_int_equal(p->code, 143);
    process_free(p);
}

/* What the launcher was started with breaks nothing in it, and reaches the workers as it was. */
static void inherited_state_is_the_workers(void **state) {
    (void)state;
    static const char odd_start[] = "import os, signal, sys\n"
                                    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
                                    "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
                                    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGALRM])\n"
                                    "os.umask(0o777)\n"
                                    "os.execv(sys.argv[1], sys.argv[1:])";
    static const char show[] = "state=$(grep -E 'SigIgn|SigBlk' /proc/self/status; umask; "
                               "stat -c %a ${TORCHELASTIC_ERROR_FILE%/*}); echo \"$state\"; exit 4";
    process *p = process_run((const char *const[]){"python3", "-c", odd_start, tutti(), "run", "--standalone",
                                                   "--nproc-per-node=2", "bash", "-c", show, NULL},
                             NULL);
    unsigned long long ignored, blocked;
    for (const char *at = p->text[0], *end = at + p->length[0]; at < end; at = strchr(at, '\n') + 1) {
        if (sscanf(at, "SigIgn: %llx", &ignored) == 1) /* Python itself ignores SIGPIPE and SIGXFSZ */
            assert_true(ignored & 1 << (SIGCHLD - 1) && ignored & 1 << (SIGUSR1 - 1));
        if (sscanf(at, "SigBlk: %llx", &blocked) == 1)
            assert_int_equal(blocked, 1 << (SIGALRM - 1) | 1 << (SIGUSR2 - 1));
    }
    assert_int_equal(count_of(p->text[0], "0777\n700\n"), 2);
    assert_int_equal(count_of(p->text[1], ": exit code 4"), 2);
    assert_int_equal(p->code, 4);
    process_free(p);
}

/* What can't be done, and on what, rather than an errno alone. */
static void a_failing_step_is_named(void **state) {
    (void)state;
    static const char no_subreaper[] =
        "import ctypes, os, struct, sys\n"
        "call = ctypes.CDLL(None, use_errno=True).prctl\n"
        "steps = [(0x20, 0, 0, 0), (0x15, 0, 3, 157), (0x20, 0, 0, 16), (0x15, 0, 1, 36), (6, 0, 0, 0x50001), "
        "(6, 0, 0, 0x7fff0000)]\n" /* prctl(PR_SET_CHILD_SUBREAPER) fails with EPERM */
        "code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))\n"
        "program = struct.pack('HxxxxxxP', len(steps), ctypes.addressof(code))\n"
        "if call(38, 1, 0, 0, 0) or call(22, 2, program, 0, 0):\n"
        "    os._exit(77)\n"
        "os.execv(sys.argv[1], sys.argv[1:])";
    process *p = process_run((const char *const[]){"unshare", "-m", "sh", "-c",
                                                   "mount -t tmpfs none /dev || exit 77; exec \"$@\"", "sh", tutti(),
                                                   "run", "--standalone", "--nproc-per-node=2", "true", NULL},
                             NULL);
    if (p->code != 77 && !strstr(p->text[1], "unshare")) {
        assert_contains(p->text[1],
                        "rank 1 failed first: could not be started: can't open /dev/null: No such file or directory");
        assert_lacks(p->text[1], "program:");
        assert_int_equal(p->code, 126);
    }
    process_free(p);
    p = process_run((const char *const[]){"python3", "-c", no_subreaper, tutti(), "run", "--standalone", "true", NULL},
                    NULL);
    if (p->code != 77) {
        assert_contains(p->text[1], "tutti run: the keeper process can't work without prctl(PR_SET_CHILD_SUBREAPER): "
                                    "Operation not permitted\n");
        assert_int_equal(p->code, 1);
    }
    process_free(p);
}

/* Without /proc, what ranks leave behind can't be found. It was lost without a word. */
static void without_proc_what_is_left_behind_is_told(void **state) {
    (void)state;
    if (getenv("TT_SANITIZED"))
        skip(); /* a sanitizer's runtime reads /proc itself */
    process *p = process_run((const char *const[]){"unshare", "-m", "sh", "-c",
                                                   "mount -t tmpfs none /proc || exit 77; exec \"$@\"", "sh", tutti(),
                                                   "run", "--standalone", "--grace-period=0.1", "--settle-period=0.1",
                                                   "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!", NULL},
                             NULL);
    if (p->code != 77 && !strstr(p->text[1], "unshare")) {
        assert_int_equal(kill((pid_t)atoi(p->text[0]), SIGKILL), 0);
        assert_contains(p->text[1], "tutti run: /proc can't be read");
        assert_contains(p->text[1], "tutti run: 1 process of the job can't be killed\n");
        assert_int_equal(p->code, 0);
    }
    process_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inherited_state_is_the_workers),
        cmocka_unit_test(a_failing_step_is_named),
        cmocka_unit_test(without_proc_what_is_left_behind_is_told),
        cmocka_unit_test(a_killed_rank_is_the_first_failure),
        cmocka_unit_test(a_killed_rank_over_tcp_is_told_with_its_signal),
        cmocka_unit_test(a_killed_rank_is_told_with_its_signal_wherever_the_ranks_meet),
        cmocka_unit_test(a_frozen_rank_is_named),
        cmocka_unit_test(short_stops_end_no_job),
        cmocka_unit_test(a_rank_that_ends_before_it_joins_is_named),
        cmocka_unit_test(a_rank_that_ends_before_all_have_joined_is_named),
        cmocka_unit_test(a_rank_that_is_frozen_before_it_joins_is_named),
        cmocka_unit_test(elastic_ranks_without_restarts_wait_for_nothing),
        cmocka_unit_test(an_elastic_rank_that_is_frozen_before_it_joins_is_replaced),
    };
    storm_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
