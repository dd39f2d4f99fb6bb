/* tutti run --max-restarts: what is started again and when, what of an attempt reaches the next, and what ends the job
 * all the same. Nothing may be left: end of file on the stdout that all descendants share (support/process.h). */
#include "support/process.h"

#include <sys/resource.h>

static char files_go_here[64];

/* Two ranks run `script`; a settle period that would be waited out fails the test. */
static process *start_attempts(const char *restarts, const char *script) {
    char tmp[96];
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", temporary_folder(files_go_here));
    return process_start((const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=2", restarts,
                                               "--settle-period=1000", "--grace-period=1000", "sh", "-c", script, NULL},
                         (const char *const[]){tmp, NULL}, -1);
}

static void finish(process *p, int code) {
    process_finish(p);
    if (p->code != code)
        fail_msg("exit code %d, expected %d: %s", p->code, code, p->text[1]);
}

static void end_attempts(process *p) {
    process_free(p);
    assert_int_equal(remove_folder(files_go_here), 0);
}

#define ATTEMPT "$TORCHELASTIC_RESTART_COUNT"
#define FOREVER "exec sleep 1000"

static void all_start_again_until_they_succeed(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=3",
                                "echo $RANK in " ATTEMPT "/$TORCHELASTIC_MAX_RESTARTS at $MASTER_PORT of $PPID.; "
                                "test " ATTEMPT " = 2 && exit 0; test $RANK = 1 || " FOREVER "; "
                                "echo mark" ATTEMPT " >&2; exit 7");
    finish(p, 0);
    for (int attempt = 0; attempt < 3; attempt++)
        for (int rank = 0; rank < 2; rank++) {
            char line[32];
            snprintf(line, sizeof line, "%d in %d/3 at ", rank, attempt);
            assert_int_equal(count_of(p->text[0], line), 1);
        }
    const char *place = strstr(p->text[0], " at "); /* port and keeper */
    char same[64];
    snprintf(same, sizeof same, "%.*s", (int)strcspn(place, "\n"), place);
    assert_int_equal(count_of(p->text[0], same), 6);
    assert_contains(p->text[1], "attempt 1 of 4: rank 1 (pid ");
    assert_contains(p->text[1], "attempt 2 of 4: rank 1 (pid ");
    assert_int_equal(count_of(p->text[1], ") ended with exit code 7; starting again"), 2);
    assert_int_equal(count_of(p->text[1], "    | mark0"), 1); /* the tail of an attempt is its own */
    assert_int_equal(count_of(p->text[1], "    | mark1"), 1);
    assert_lacks(p->text[1], "failed first");
    end_attempts(p);
}

static void the_last_failure_is_reported_with_those_before(void **state) {
    (void)state;
    setenv("PET_SETTLE_PERIOD", "1", 1);
    process *p = process_start((const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=2",
                                                     "--max-restarts=2", "--settle-period=0.1", "sh", "-c",
                                                     "test $RANK = " ATTEMPT " && kill -KILL $$; test " ATTEMPT
                                                     " = 2 && test $RANK = 0 && exit 9; " FOREVER,
                                                     NULL},
                               NULL, -1);
    finish(p, 9);
    assert_contains(p->text[1], "attempt 1 of 3: rank 0 (pid ");
    assert_contains(p->text[1], "attempt 2 of 3: rank 1 (pid ");
    assert_int_equal(count_of(p->text[1], "was killed by SIGKILL (signal 9); starting again"), 2);
    assert_contains(p->text[1], "rank 0 failed first: exit code 9");
    const char *list = strstr(p->text[1], "that was attempt 3 of 3; before it:");
    assert_non_null(list);
    assert_non_null(strstr(list, "  attempt 1: rank 0 (pid "));
    assert_non_null(strstr(list, "  attempt 2: rank 1 (pid "));
    process_free(p);
}

static void success_is_final(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=3", "echo once; exit 0");
    finish(p, 0);
    assert_int_equal(count_of(p->text[0], "once"), 2);
    assert_int_equal(count_of(p->text[1], "attempt"), 0);
    end_attempts(p);
}

static void who_succeeded_starts_again_too(void **state) {
    (void)state;
    process *p =
        start_attempts("--max-restarts=1", "echo came; test $RANK = 0 && exit 0; while test " ATTEMPT
                                           " = 0; do test -e $TMPDIR/seen && exit 1; : >$TMPDIR/seen; sleep 0.2; done; "
                                           "rm $TMPDIR/seen");
    finish(p, 0);
    assert_int_equal(count_of(p->text[0], "came"), 4);
    end_attempts(p);
}

static void what_cannot_be_executed_is_not_tried_again(void **state) {
    (void)state;
    char folder[64], path[96];
    snprintf(path, sizeof path, "%s/program", temporary_folder(folder));
    write_file(path, "#!/nothing/here\n", 0700);
    process *p = run_tutti("run", "--standalone", "--nproc-per-node=2", "--max-restarts=3", path);
    assert_int_equal(p->code, 127);
    assert_contains(p->text[1], "could not be started");
    assert_contains(p->text[1], "not started again: what can't be executed would fail the same way");
    assert_lacks(p->text[1], "starting again");
    process_free(p);
    unlink(path);
    assert_int_equal(remove_folder(folder), 0);
}

/* Rank 0 says that it ended because of another, before that other ends. */
static void who_fails_because_of_another_is_not_the_first(void **state) {
    (void)state;
    process *p = start_attempts(
        "--max-restarts=1",
        "test " ATTEMPT " = 1 && exit 0; if test $RANK = 0; then "
        "echo '{\"message\": {\"message\": \"lost rank 1\", \"extraInfo\": {\"secondary\": true}}}' "
        ">$TORCHELASTIC_ERROR_FILE; echo $$ >$TMPDIR/first.new; mv $TMPDIR/first.new $TMPDIR/first; exit 1; fi; "
        "until test -s $TMPDIR/first; do sleep 0.02; done; while kill -0 $(cat $TMPDIR/first) 2>/dev/null; do sleep "
        "0.02; done; sleep 0.3; rm $TMPDIR/first; exit 5");
    finish(p, 0);
    assert_contains(p->text[1], "attempt 1 of 2: rank 1 (pid ");
    assert_contains(p->text[1], ") ended with exit code 5; starting again");
    end_attempts(p);
}

/* An error file of the first attempt is not the second's. */
static void messages_are_of_their_attempt(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=2",
                                "test " ATTEMPT " = 2 && exit 0; test $RANK = 1 || " FOREVER "; test " ATTEMPT
                                " = 0 && echo '{\"message\": \"the disk is full\"}' >$TORCHELASTIC_ERROR_FILE; exit 4");
    finish(p, 0);
    assert_int_equal(count_of(p->text[1], "the disk is full"), 1);
    assert_int_equal(count_of(p->text[1], "ended with exit code 4; starting again"), 2);
    end_attempts(p);
}

/* What ranks leave behind is gone before the next attempt begins, however deaf it is. */
static void nothing_of_an_attempt_meets_the_next(void **state) {
    (void)state;
    static const char script[] =
        "if test " ATTEMPT " = 0; then (setsid sh -c 'trap \"\" TERM HUP; echo $$ >>$TMPDIR/left; "
        "exec sleep 1000' &); until test -s $TMPDIR/left; do sleep 0.02; done; test $RANK = 0 || " FOREVER
        "; exit 1; fi; "
        "for pid in $(cat $TMPDIR/left); do kill -0 $pid 2>/dev/null && echo met $pid; done; echo looked; "
        "test $RANK = 1 || exit 0; sleep 0.3; rm $TMPDIR/left";
    char tmp[96];
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", temporary_folder(files_go_here));
    process *p =
        process_start((const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=2", "--max-restarts=1",
                                            "--grace-period=0.1", "sh", "-c", script, NULL},
                      (const char *const[]){tmp, NULL}, -1);
    finish(p, 0);
    assert_int_equal(count_of(p->text[0], "looked"), 2);
    assert_lacks(p->text[0], "met");
    end_attempts(p);
}

/* Each attempt gets the same descriptors. */
static void no_descriptor_is_left_to_the_next(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=3", "echo $RANK: $(ls /proc/self/fd | wc -l) open.; test " ATTEMPT
                                                    " = 3 && exit 0; test $RANK = 1 || " FOREVER "; exit 1");
    finish(p, 0);
    for (int rank = 0; rank < 2; rank++) {
        char begin[8], line[64];
        snprintf(begin, sizeof begin, "%d: ", rank);
        const char *first = strstr(p->text[0], begin);
        assert_non_null(first);
        snprintf(line, sizeof line, "%.*s", (int)strcspn(first, "\n"), first);
        assert_int_equal(count_of(p->text[0], line), count_of(p->text[0], begin));
    }
    end_attempts(p);
}

/* ---- signals and deaths */

#define IN_THE_SECOND "if test " ATTEMPT " = 0; then test $RANK = 0 || exit 3; " FOREVER "; fi; "

static void a_signal_ends_the_job(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        process *p = start_attempts("--max-restarts=1000", IN_THE_SECOND "echo again; " FOREVER);
        process_expect(p, 0, "again", 2);
        kill(p->pid, signals[i]);
        finish(p, 128 + signals[i]);
        assert_int_equal(count_of(p->text[1], "starting again"), 1);
        end_attempts(p);
    }
}

/* A rank has failed and another is deaf: without the signal all would start again. */
static void a_signal_while_an_attempt_ends_is_the_end(void **state) {
    (void)state;
    process *p =
        start_attempts("--max-restarts=1000",
                       "if test $RANK = 1; then until test -e $TMPDIR/deaf; do sleep 0.02; done; rm $TMPDIR/deaf; "
                       "exit 3; fi; trap 'echo told' TERM; : >$TMPDIR/deaf; while :; do sleep 0.02; done");
    process_expect(p, 0, "told", 1);
    kill(p->pid, SIGTERM);
    process_expect(p, 1, "got SIGTERM", 1);
    kill(p->pid, SIGTERM);
    finish(p, 143);
    assert_contains(p->text[1], "got SIGTERM again");
    assert_lacks(p->text[1], "starting again");
    end_attempts(p);
}

/* Attempts follow each other as fast as they can; the signal comes at any moment. */
static void a_signal_between_attempts_is_the_end(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        process *p = start_attempts("--max-restarts=1000000", "echo came; exit 3");
        process_expect(p, 0, "came", 4 + i);
        kill(p->pid, SIGTERM);
        finish(p, 143);
        end_attempts(p);
    }
}

static void the_launcher_is_killed_in_a_later_attempt(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=1000",
                                IN_THE_SECOND "echo again; "
                                              "trap '' TERM; (setsid sleep 1000 &); while :; do sleep 1000; done");
    process_expect(p, 0, "again", 2);
    kill(p->pid, SIGKILL);
    finish(p, 137);
    end_attempts(p);
}

static void the_launcher_is_killed_between_attempts(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        process *p = start_attempts("--max-restarts=1000000", "echo came; exit 3");
        process_expect(p, 0, "came", 4 + i);
        kill(p->pid, SIGKILL);
        finish(p, 137);
        end_attempts(p);
    }
}

static void the_keeper_is_killed_in_a_later_attempt(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=1000", IN_THE_SECOND "echo again of $PPID.; " FOREVER);
    process_expect(p, 0, "again", 2);
    kill((pid_t)atoi(strstr(p->text[0], "again of ") + strlen("again of ")), SIGKILL);
    finish(p, 1);
    assert_contains(p->text[1], "was killed: ending the job");
    assert_int_equal(count_of(p->text[1], "starting again"), 1);
    end_attempts(p);
}

/* The launcher can't make pipes for the next attempt. */
static void an_attempt_that_cannot_begin_is_an_error(void **state) {
    (void)state;
    process *p = start_attempts("--max-restarts=3", "echo rank $RANK is $$.; " FOREVER);
    process_expect(p, 0, ".\n", 2);
    assert_int_equal(prlimit(p->pid, RLIMIT_NOFILE, &(struct rlimit){3, 3}, NULL), 0);
    kill((pid_t)atoi(strstr(p->text[0], "rank 1 is ") + strlen("rank 1 is ")), SIGKILL);
    finish(p, 1);
    assert_contains(p->text[1], "attempt 1 of 4: rank 1 (pid ");
    assert_contains(p->text[1], "the workers can't be started again: can't make a pipe");
    end_attempts(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_start_again_until_they_succeed),
        cmocka_unit_test(the_last_failure_is_reported_with_those_before),
        cmocka_unit_test(success_is_final),
        cmocka_unit_test(who_succeeded_starts_again_too),
        cmocka_unit_test(what_cannot_be_executed_is_not_tried_again),
        cmocka_unit_test(who_fails_because_of_another_is_not_the_first),
        cmocka_unit_test(messages_are_of_their_attempt),
        cmocka_unit_test(nothing_of_an_attempt_meets_the_next),
        cmocka_unit_test(no_descriptor_is_left_to_the_next),
        cmocka_unit_test(a_signal_ends_the_job),
        cmocka_unit_test(a_signal_while_an_attempt_ends_is_the_end),
        cmocka_unit_test(a_signal_between_attempts_is_the_end),
        cmocka_unit_test(the_launcher_is_killed_in_a_later_attempt),
        cmocka_unit_test(the_launcher_is_killed_between_attempts),
        cmocka_unit_test(the_keeper_is_killed_in_a_later_attempt),
        cmocka_unit_test(an_attempt_that_cannot_begin_is_an_error),
    };
    signal(SIGINT, SIG_DFL); /* a shell's background ignores it, */
    signal(SIGHUP, SIG_DFL); /* nohup this */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
