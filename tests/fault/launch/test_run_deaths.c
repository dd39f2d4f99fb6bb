/* tutti run: launcher, keeper and workers die in every order, and nothing is left behind. The proof is end of file on
 * the stdout that all descendants share (support/process.h). */
#include "support/process.h"

#include <pty.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* Leave session and parent: a double fork into a session of its own. */
#define DAEMONISE "(setsid sh -c 'trap \"\" TERM HUP INT; echo daemon; sleep 1000 & wait' &) ; "

static char errors_go_here[64];

/* From so many unread bytes on a writer waits soon. */
enum { FILLED_PIPE = 56 * 1024, FILLED_TERMINAL = 3 * 1024 };

/* Error files go to a folder of the test's own, so that what is left of them is seen. */
static process *start_job(const char *grace, const char *script) {
    char tmp[96];
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", temporary_folder(errors_go_here));
    return process_start(
        (const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=2", grace, "sh", "-c", script, NULL},
        (const char *const[]){tmp, NULL}, -1);
}

static void end_job(process *p) {
    process_free(p);
    assert_int_equal(remove_folder(errors_go_here), 0);
}

/* The number after `what` in stdout. */
static pid_t number_after(const process *p, const char *what) {
    const char *at = strstr(p->text[0], what);
    assert_non_null(at);
    return (pid_t)atoi(at + strlen(what));
}

static void launcher_killed(void **state) {
    (void)state;
    process *p = start_job("--grace-period=30", DAEMONISE "echo ready; trap '' TERM; while :; do sleep 1000; done");
    process_expect(p, 0, "ready", 2);
    process_expect(p, 0, "daemon", 2);
    kill(p->pid, SIGKILL);
    process_finish(p);
    assert_int_equal(p->code, 137);
    end_job(p); /* the keeper held the pipe, too, while it cleaned up */
}

static void whole_process_group_killed(void **state) {
    (void)state;
    process *p = start_job("--grace-period=30", DAEMONISE "echo ready; sleep 1000");
    process_expect(p, 0, "ready", 2);
    process_expect(p, 0, "daemon", 2);
    kill(-p->pid, SIGKILL);
    process_finish(p);
    end_job(p);
}

/* Start a job whose launcher is traced; false: that is not allowed here. */
static bool start_traced(process *p, const char *folder) {
    int out[2], status;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    p->pid = fork();
    if (p->pid == 0) {
        dup2(out[1], 1);
        setenv("TMPDIR", folder, 1);
        setenv("OMP_NUM_THREADS", "1", 1);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(77);
        execl(tutti(), "tutti", "run", "--standalone", "sleep", "1000", NULL);
        _exit(127);
    }
    assert_true(p->pid > 0);
    close(out[1]);
    p->fds[0] = out[0];
    p->fds[1] = -1;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return WIFSTOPPED(status) &&
           ptrace(PTRACE_SETOPTIONS, p->pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0;
}

/* Let the tracee go on to its next beginning or end of a system call; false: it has ended. */
static bool next_stop(const process *p, struct __ptrace_syscall_info *info) {
    for (int status, sig = 0;; sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status)) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, p->pid, NULL, (void *)(intptr_t)sig), 0);
        assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
        if (!WIFSTOPPED(status))
            return false;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80))
            return ptrace(PTRACE_GET_SYSCALL_INFO, p->pid, (void *)sizeof *info, info) > 0;
    }
}

/* From where it becomes a subreaper, right before it makes anything, the launcher is killed after its first system
 * call, its second, and so on. */
static void launcher_killed_in_its_first_moments(void **state) {
    (void)state;
    enum { CALLS = 40 };
    char folder[64];
    temporary_folder(folder);
    for (int calls = 0; calls < CALLS; calls++) {
        process *p = calloc(1, sizeof *p);
        struct __ptrace_syscall_info info = {0};
        assert_non_null(p);
        if (!start_traced(p, folder)) {
            kill(p->pid, SIGKILL);
            process_free(p);
            remove_folder(folder);
            skip();
        }
        while (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.entry.nr != SYS_prctl ||
               info.entry.args[0] != PR_SET_CHILD_SUBREAPER)
            assert_true(next_stop(p, &info));
        for (int i = 0; i <= 2 * calls; i++)
            assert_true(next_stop(p, &info));
        kill(p->pid, SIGKILL);
        process_finish(p);
        process_free(p);
    }
    assert_int_equal(remove_folder(folder), 0);
}

static void keeper_killed(void **state) {
    (void)state;
    process *p = start_job("--grace-period=30", DAEMONISE "echo ready, my parent is $PPID.; sleep 1000");
    process_expect(p, 0, "ready", 2);
    process_expect(p, 0, "daemon", 2);
    kill(number_after(p, "my parent is "), SIGKILL);
    process_finish(p);
    assert_contains(p->text[1], "was killed: ending the job");
    assert_int_equal(p->code, 1);
    end_job(p);
}

static void keeper_frozen(void **state) {
    (void)state;
    process *p = start_job("--grace-period=0.1", "echo ready, my parent is $PPID.; sleep 1000");
    process_expect(p, 0, "ready", 2);
    kill(number_after(p, "my parent is "), SIGSTOP);
    kill(p->pid, SIGTERM);
    process_finish(p);
    assert_int_equal(p->code, 143);
    end_job(p);
}

/* It has reported the end of all, and was waited for without end. */
static void keeper_frozen_at_the_end(void **state) {
    (void)state;
    process *p = process_start((const char *const[]){tutti(), "run", "--standalone", "--grace-period=0.1", "sh", "-c",
                                                     "echo ready, I am $$, my parent is $PPID.; exec sleep 1000", NULL},
                               NULL, -1);
    process_expect(p, 0, ".\n", 1);
    pid_t worker = number_after(p, "I am "), keeper = number_after(p, "my parent is ");
    kill(p->pid, SIGSTOP);
    kill(worker, SIGKILL);
    while (kill(worker, 0) == 0)
        poll(NULL, 0, 5);
    kill(keeper, SIGSTOP);
    kill(p->pid, SIGTERM);
    kill(p->pid, SIGCONT);
    process_finish(p);
    assert_int_equal(p->code, 143);
    process_free(p);
}

static void signals_are_passed_on(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        process *p = start_job("--grace-period=30",
                               "trap 'echo caught; exit 0' TERM INT HUP; echo ready; while :; do sleep 0.02; done");
        process_expect(p, 0, "ready", 2);
        kill(p->pid, signals[i]);
        process_finish(p);
        assert_int_equal(count_of(p->text[0], "caught"), 2);
        assert_lacks(p->text[1], "failed first");
        assert_int_equal(p->code, 128 + signals[i]);
        end_job(p);
    }
}

/* A terminal sends Ctrl-C to launcher and workers alike; passed on as well it would come twice, and the second means
 * "now". */
static void ctrl_c_comes_once(void **state) {
    (void)state;
    static const char script[] =
        "trap 'echo caught; c=1' INT; echo ready; i=0; while test $i -lt 20; do i=$((i+${c:-0})); sleep 0.02; done";
    process *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->fds[1] = -1;
    p->pid = forkpty(&p->fds[0], NULL, NULL, NULL);
    if (p->pid == 0) {
        execl(tutti(), "tutti", "run", "--standalone", "--nproc-per-node=2", "sh", "-c", script, NULL);
        _exit(127);
    }
    assert_true(p->pid > 0);
    process_expect(p, 0, "ready", 2);
    assert_int_equal(write(p->fds[0], "\x03", 1), 1);
    process_finish(p);
    assert_contains(p->text[0], "got SIGINT");
    assert_int_equal(count_of(p->text[0], "caught"), 2);
    assert_int_equal(p->code, 130);
    process_free(p);
}

static char state_of(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *end = strrchr(read_file(path, text, sizeof text), ')');
    assert_non_null(end);
    return end[2];
}

static void wait_for_states(const pid_t pids[2], bool stopped) {
    int64_t deadline = process_now_ms() + PATIENCE_MS;
    for (int i = 0; i < 2; i++)
        while ((state_of(pids[i]) == 'T') != stopped) {
            assert_true(process_now_ms() < deadline);
            poll(NULL, 0, 5);
        }
}

/* Ctrl-Z stops all ranks, also those that have left the terminal's session, and the shell continues them. */
static void ctrl_z_stops_all(void **state) {
    (void)state;
    static const char script[] =
        "$TUTTI run --standalone --nproc-per-node=2 sh -c 'echo rank$RANK.$$.; exec sleep 1000'; "
        "echo stopped; read line; fg; echo over $?";
    process *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->fds[1] = -1;
    p->pid = forkpty(&p->fds[0], NULL, NULL, NULL);
    if (p->pid == 0) {
        execlp("bash", "bash", "-mc", script, NULL);
        _exit(127);
    }
    assert_true(p->pid > 0);
    process_expect(p, 0, ".\r\n", 2);
    const pid_t pids[2] = {number_after(p, "rank0."), number_after(p, "rank1.")};
    assert_int_equal(getsid(pids[0]), p->pid);
    assert_int_equal(getsid(pids[1]), pids[1]);
    assert_int_equal(write(p->fds[0], "\x1a", 1), 1);
    process_expect(p, 0, "stopped", 1);
    wait_for_states(pids, true);
    assert_int_equal(write(p->fds[0], "\r", 1), 1);
    wait_for_states(pids, false);
    assert_int_equal(write(p->fds[0], "\x03", 1), 1);
    process_finish(p);
    assert_contains(p->text[0], "over 130");
    process_free(p);
}

/* The kernel shares CPUs among sessions: a job whose ranks are in one gets less beside others. */
static void each_rank_has_a_session(void **state) {
    (void)state;
    process *p = start_job("--grace-period=30", "test $(cut -d ' ' -f 6 /proc/$$/stat) = $$ && echo leader");
    process_finish(p);
    assert_string_equal(p->text[0], "leader\nleader\n");
    end_job(p);
}

/* A leaf says that it is told, and goes on for a moment, in which it might be told again. */
static void set_leaves(void) {
    setenv("LEAF",
           "trap 'echo told; c=1' TERM; echo ready; i=0; "
           "while test $i -lt 10; do i=$((i+${c:-0})); sleep 0.02; done",
           1);
    setenv("BELOW", "sh -c \"$LEAF\"; true", 1);
    setenv("DEEP", "bash -c \"$BELOW\"; true", 1);
    /* as timeout(1), which says it twice */
    setenv("RELAY",
           "import os, signal, subprocess; os.setpgid(0, 0); p = subprocess.Popen(['sh', '-c', os.environ['LEAF']]); "
           "signal.signal(signal.SIGTERM, lambda *a: p.terminate()); p.wait()",
           1);
}

/* However deep a process is, it is told at once, and once. */
static void all_below_a_rank_are_told(void **state) {
    (void)state;
    static const char *const scripts[] = {
        "eval \"$BELOW\"",
        "bash -c \"$DEEP\"; true",
        "trap : TERM; eval \"$DEEP\"",
        "setsid -w bash -c 'setsid -w bash -c \"$BELOW\"; true'; true",
        "set -m; bash -c \"$DEEP\"; true",
        "python3 -c \"$RELAY\"; true",
        "bash -c \"$DEEP\" & exit 0",
    };
    set_leaves();
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        process *p = start_job("--grace-period=1000", scripts[i]);
        process_expect(p, 0, "ready", 2);
        kill(p->pid, SIGTERM);
        process_finish(p);
        if (count_of(p->text[0], "told") != 2)
            fail_msg("%s: %s", scripts[i], p->text[0]);
        assert_int_equal(p->code, 143);
        end_job(p);
    }
}

static void all_below_survivors_are_told(void **state) {
    (void)state;
    set_leaves();
    setenv("LEAF", "trap 'echo told; exit' TERM; : >$TMPDIR/up; while :; do sleep 0.02; done", 1);
    process *p = start_job("--grace-period=1000", "if test $RANK = 0; then eval \"$DEEP\"; fi; "
                                                  "while ! rm $TMPDIR/up 2>/dev/null; do sleep 0.02; done; exit 9");
    process_finish(p);
    assert_string_equal(p->text[0], "told\n");
    assert_int_equal(p->code, 9);
    end_job(p);
}

static void who_ignores_sigterm_is_killed(void **state) {
    (void)state;
    process *p = start_job("--grace-period=0.1", "trap '' TERM; echo ready; while :; do sleep 1000; done");
    process_expect(p, 0, "ready", 2);
    kill(p->pid, SIGTERM);
    process_finish(p);
    assert_int_equal(p->code, 143);
    end_job(p);
}

/* Wait until so many bytes are there to be read. */
static void wait_until_filled(int fd, int bytes) {
    int64_t deadline = process_now_ms() + PATIENCE_MS;
    for (int there = 0; there < bytes; poll(NULL, 0, 5)) {
        assert_int_equal(ioctl(fd, FIONREAD, &there), 0);
        assert_true(process_now_ms() < deadline);
    }
}

/* Stop reading stderr: `p` ends when stdout does. Returns its descriptor, to be kept open. */
static int leave_stderr_unread(process *p) {
    int unread = p->fds[1];
    p->fds[1] = -1;
    return unread;
}

/* Rank 0 writes more than anybody takes; then rank 1 ends, which the launcher's own log says. */
static void a_stalled_reader_does_not_outlive_a_signal(void **state) {
    (void)state;
    static const char script[] = "test $RANK = 1 || exec tr '\\0' x </dev/zero >&2; echo $$.; exec sleep 1000";
    process *p =
        process_start((const char *const[]){tutti(), "run", "--standalone", "--log-level=debug", "--nproc-per-node=2",
                                            "--grace-period=0.5", "sh", "-c", script, NULL},
                      NULL, -1);
    int unread = leave_stderr_unread(p);
    process_expect(p, 0, ".\n", 1);
    wait_until_filled(unread, FILLED_PIPE);
    kill((pid_t)atoi(p->text[0]), SIGUSR1);
    while (kill((pid_t)atoi(p->text[0]), 0) == 0)
        poll(NULL, 0, 5);
    kill(p->pid, SIGTERM);
    process_finish(p);
    assert_int_equal(p->code, 143);
    close(unread);
    process_free(p);
}

static void a_stalled_reader_does_not_outlive_the_ranks(void **state) {
    (void)state;
    process *p = process_start((const char *const[]){tutti(), "run", "--standalone", "--grace-period=0.1", "sh", "-c",
                                                     "head -c 150000 /dev/zero | tr '\\0' x >&2", NULL},
                               NULL, -1);
    int unread = leave_stderr_unread(p);
    process_finish(p);
    assert_int_equal(p->code, 0);
    close(unread);
    process_free(p);
}

/* A terminal takes less at once than a pipe: a write that waits for its reader would keep signals from the launcher. */
static void a_stalled_terminal_does_not_either(void **state) {
    (void)state;
    int terminal, end;
    process *p = calloc(1, sizeof *p);
    int out[2];
    assert_non_null(p);
    assert_int_equal(openpty(&terminal, &end, NULL, NULL, NULL), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    p->fds[0] = out[0];
    p->fds[1] = -1;
    p->pid = fork();
    if (p->pid == 0) {
        dup2(out[1], 1);
        dup2(end, 2);
        close(end);
        close(terminal);
        execl(tutti(), "tutti", "run", "--standalone", "--grace-period=0.5", "sh", "-c",
              "exec tr '\\0' x </dev/zero >&2", NULL);
        _exit(127);
    }
    assert_true(p->pid > 0);
    close(end);
    close(out[1]);
    wait_until_filled(terminal, FILLED_TERMINAL);
    kill(p->pid, SIGTERM);
    process_finish(p);
    assert_int_equal(p->code, 143);
    close(terminal);
    process_free(p);
}

static void second_signal_kills_at_once(void **state) {
    (void)state;
    process *p = start_job("--grace-period=1000", "trap 'echo caught' TERM; echo ready; while :; do sleep 0.02; done");
    process_expect(p, 0, "ready", 2);
    kill(p->pid, SIGTERM);
    process_expect(p, 0, "caught", 2);
    kill(p->pid, SIGTERM);
    process_finish(p);
    assert_contains(p->text[1], "got SIGTERM again");
    assert_int_equal(p->code, 143);
    end_job(p);
}

static void ignored_signals_stay_ignored(void **state) {
    (void)state;
    process *p = process_start(
        (const char *const[]){"sh", "-c",
                              "trap '' HUP; exec \"$0\" run --standalone sh -c 'echo ready; read x; echo done'",
                              tutti(), NULL},
        NULL, -1);
    process_finish(p); /* stdin is /dev/null: read returns at once */
    assert_contains(p->text[0], "done");
    process_free(p);

    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    p = process_start(
        (const char *const[]){
            "sh", "-c", "trap '' HUP; exec \"$0\" run --standalone sh -c 'echo ready; read x; echo $x'", tutti(), NULL},
        NULL, ends[0]);
    close(ends[0]);
    process_expect(p, 0, "ready", 1);
    kill(p->pid, SIGHUP);
    assert_int_equal(write(ends[1], "still here\n", 11), 11);
    close(ends[1]);
    process_finish(p);
    assert_contains(p->text[0], "still here");
    assert_int_equal(p->code, 0);
    process_free(p);
}

static void survivors_are_stopped(void **state) {
    (void)state;
    process *p =
        start_job("--grace-period=0.1",
                  "if test $RANK = 1; then while ! rm $TMPDIR/deaf 2>/dev/null; do sleep 0.02; done; exit 9; fi; "
                  "trap '' TERM; : >$TMPDIR/deaf; while :; do sleep 1000; done");
    process_finish(p);
    assert_contains(p->text[1], "rank 1 failed first: exit code 9");
    assert_contains(p->text[1], "rank 0: killed by SIGKILL (signal 9), after tutti sent SIGKILL");
    assert_int_equal(p->code, 9);
    end_job(p);
}

static void survivors_may_end_by_themselves(void **state) {
    (void)state;
    setenv("PET_SETTLE_PERIOD", "60", 1);
    process *p = start_job("--grace-period=30",
                           "if test $RANK = 1; then echo $$ >&2; exit 9; fi; trap 'echo told' TERM; exit 0");
    unsetenv("PET_SETTLE_PERIOD");
    process_finish(p);
    assert_lacks(p->text[0], "told");
    assert_contains(p->text[1], "rank 0: exit code 0");
    assert_int_equal(p->code, 9);
    end_job(p);
}

static void a_stopped_survivor_ends_too(void **state) {
    (void)state;
    process *p = start_job("--grace-period=1000", "if test $RANK = 1; then exit 9; fi; kill -STOP $$; echo woken");
    process_finish(p);
    assert_int_equal(p->code, 9);
    end_job(p);
}

/* A worker's orphan holds stdout and stderr open, and must not hold the launcher. */
static void what_workers_leave_behind_ends(void **state) {
    (void)state;
    process *p = start_job("--grace-period=0.1", DAEMONISE "sleep 1000 & exit 0");
    process_finish(p);
    assert_contains(p->text[1], "processes that they started are still there");
    assert_int_equal(p->code, 0);
    end_job(p);
}

/* A nested launcher is a subreaper itself. */
static void nested_jobs_die_too(void **state) {
    (void)state;
    process *p =
        start_job("--grace-period=30",
                  "exec $TUTTI run --standalone --nproc-per-node=2 sh -c 'setsid sleep 1000 & echo inner; sleep 1000'");
    process_expect(p, 0, "inner", 4);
    kill(p->pid, SIGKILL);
    process_finish(p);
    process_free(p);
    remove_folder(errors_go_here); /* the inner jobs had no time to remove theirs */
}

/* Children that the process had before it became `tutti run` are not the job's. */
static void strangers_are_spared(void **state) {
    (void)state;
    process *p = process_start(
        (const char *const[]){
            "sh", "-c",
            "sleep 1000 & echo stranger $!.; exec \"$0\" run --standalone sh -c 'echo parent $PPID.; sleep 1000'",
            tutti(), NULL},
        NULL, -1);
    process_expect(p, 0, "parent ", 1);
    process_expect(p, 0, ".\n", 2);
    pid_t stranger = number_after(p, "stranger ");
    kill(number_after(p, "parent "), SIGKILL);
    process_expect(p, 1, "was killed: ending the job", 1);
    int64_t deadline = process_now_ms() + PATIENCE_MS;
    int status;
    while (waitpid(p->pid, &status, WNOHANG) == 0 && process_now_ms() < deadline)
        poll(NULL, 0, 5);
    assert_true(WIFEXITED(status));
    assert_int_equal(kill(stranger, SIGKILL), 0);
    process_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launcher_killed),
        cmocka_unit_test(launcher_killed_in_its_first_moments),
        cmocka_unit_test(whole_process_group_killed),
        cmocka_unit_test(keeper_killed),
        cmocka_unit_test(keeper_frozen),
        cmocka_unit_test(keeper_frozen_at_the_end),
        cmocka_unit_test(signals_are_passed_on),
        cmocka_unit_test(ctrl_c_comes_once),
        cmocka_unit_test(ctrl_z_stops_all),
        cmocka_unit_test(each_rank_has_a_session),
        cmocka_unit_test(all_below_a_rank_are_told),
        cmocka_unit_test(all_below_survivors_are_told),
        cmocka_unit_test(who_ignores_sigterm_is_killed),
        cmocka_unit_test(a_stalled_reader_does_not_outlive_a_signal),
        cmocka_unit_test(a_stalled_reader_does_not_outlive_the_ranks),
        cmocka_unit_test(a_stalled_terminal_does_not_either),
        cmocka_unit_test(second_signal_kills_at_once),
        cmocka_unit_test(ignored_signals_stay_ignored),
        cmocka_unit_test(survivors_are_stopped),
        cmocka_unit_test(survivors_may_end_by_themselves),
        cmocka_unit_test(a_stopped_survivor_ends_too),
        cmocka_unit_test(what_workers_leave_behind_ends),
        cmocka_unit_test(nested_jobs_die_too),
        cmocka_unit_test(strangers_are_spared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
