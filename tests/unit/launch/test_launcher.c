/* elastic: how the workers' stderr is passed on, what is kept of it, and who is called the first failure. The
 * launcher's parts are in the command only, so they are compiled into this test. */
#include "launch/local/error_files.c"
#include "launch/local/logs.c"
#include "launch/local/merge.c"
#include "launch/local/report.c"
#include "launch/local/streams.c"
#include "launch/local/terminal.c"
#include "launch/machine/failures.c"
#include "support/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct fixture {
    tt__streams streams;
    int to[2]; /* write ends of the workers' stderr */
    int out;   /* read end of ours */
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    int ends[2];
    if (!f || pipe2(ends, O_CLOEXEC) || tt__streams_open(&f->streams, 2, ends[1], f->to))
        return -1;
    f->out = ends[0];
    fcntl(f->out, F_SETFL, O_NONBLOCK);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    close(f->streams.out_fd);
    close(f->out);
    close(f->to[0]);
    close(f->to[1]);
    tt__streams_close(&f->streams);
    free(f);
    return 0;
}

static void put(const fixture *f, int rank, const char *text) {
    assert_int_equal(write(f->to[rank], text, strlen(text)), (ssize_t)strlen(text));
}

static const char *came_out(const fixture *f) {
    static char text[65536];
    ssize_t n = read(f->out, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

/* The clock of its node is behind this one's. */
static void nothing_fails_before_the_start(void **state) {
    fixture *f = *state;
    const tt__moment started = {.realtime_ns = (int64_t)1700000000 * 1000000000};
    const tt__job job = {.nodes = 2};
    for (int i = 0; i < 2; i++) {
        const tt__worker worker = {.pid = 7,
                                   .ended = true,
                                   .status = 3 << 8,
                                   .when = {.realtime_ns = started.realtime_ns + (i ? 250000000 : -250000000)}};
        const tt__first first = {.rank = 1, .node = 1, .hostname = "b", .worker = &worker, .tail = ""};
        tt__report_first(&f->streams, &job, &first, &started);
        tt__streams_flush(&f->streams, PATIENCE_MS);
        const char *text = came_out(f);
        if (!strstr(text, i ? ", 0.2 s after the start)" : ", 0.0 s after the start)"))
            fail_msg("%s", text);
    }
}

static void ranks_do_not_mix_inside_a_line(void **state) {
    fixture *f = *state;
    put(f, 0, "zero ");
    tt__streams_serve(&f->streams);
    f->streams.of[0].pending_ms = INT64_MAX - FLUSH_MS; /* not yet time to give up on the line end */
    put(f, 1, "one\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "one\n");
    put(f, 0, "ends\nnext");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "zero ends\n");
    tt__streams_drain(&f->streams, 0);
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "next");
    tt__streams_print(&f->streams, "a line of our own %d", 7);
    tt__streams_flush(&f->streams, PATIENCE_MS);
    assert_string_equal(came_out(f), "\na line of our own 7\n");
}

static void a_prompt_goes_out_after_a_while(void **state) {
    fixture *f = *state;
    int timeout = -1;
    struct pollfd fds[3];
    put(f, 0, "Password: ");
    tt__streams_serve(&f->streams);
    assert_int_equal(tt__streams_poll(&f->streams, fds, &timeout), 2);
    assert_in_range(timeout, 0, FLUSH_MS);
    f->streams.of[0].pending_ms -= FLUSH_MS;
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "Password: ");
}

static void what_all_say_is_one_line(void **state) {
    fixture *f = *state;
    put(f, 0, "tutti: rank 4: TT_ERR_PEER: rank 6 died\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "");
    int timeout = -1;
    struct pollfd fds[3];
    tt__streams_poll(&f->streams, fds, &timeout);
    assert_in_range(timeout, 0, FLUSH_MS);
    put(f, 1, "tutti: rank 5: TT_ERR_PEER: rank 6 died\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: ranks 4-5: TT_ERR_PEER: rank 6 died\n");
}

static void ranks_that_name_themselves_say_the_same(void **state) {
    fixture *f = *state;
    put(f, 0, "tutti: rank 0: rank 10 died, while rank 0 waits for it\n");
    put(f, 1, "tutti: rank 1: rank 10 died, while rank 1 waits for it\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: ranks 0-1: rank 10 died, while this rank waits for it\n");
}

static void ranks_that_name_each_other_say_the_same(void **state) {
    fixture *f = *state;
    put(f, 0, "tutti: rank 0: rank 0 and rank 1 disagree\n");
    put(f, 1, "tutti: rank 1: rank 0 and rank 1 disagree\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: ranks 0-1: rank 0 and rank 1 disagree\n");
}

/* The report of four workers that exit with 1 and these messages, of which number `first` was the first. */
static const char *report_of(fixture *f, const char *const messages[4], int first) {
    tt__worker workers[4] = {0};
    const tt__job job = {.workers = 4, .first_rank = 4};
    for (int i = 0; i < 4; i++)
        workers[i] = (tt__worker){.ended = true, .status = 1 << 8, .message = (char *)(uintptr_t)messages[i]};
    tt__report_others(&f->streams, &job, workers, first);
    tt__streams_flush(&f->streams, PATIENCE_MS);
    return came_out(f);
}

static void what_all_report_is_one_line(void **state) {
    fixture *f = *state;
    static const char both[] = "rank 4 and rank 5 disagree";
    assert_string_equal(report_of(f, (const char *const[]){both, both, both, "rank 7: another"}, -1),
                        "tutti run: ranks 4-6: exit code 1: rank 4 and rank 5 disagree\n"
                        "tutti run: rank 7: exit code 1: another\n");
    assert_string_equal(report_of(f, (const char *const[]){both, both, both, both}, 1),
                        "tutti run: ranks 4, 6-7: exit code 1: the same message\n");
    /* Each names itself, but for two that say the same to the letter. */
    assert_string_equal(
        report_of(f, (const char *const[]){"rank 4 is lost", "rank 5 is lost", "rank 4 is lost", "rank 7 is lost"}, -1),
        "tutti run: ranks 4, 6: exit code 1: rank 4 is lost\n"
        "tutti run: ranks 5, 7: exit code 1: this rank is lost\n");
}

static void what_one_says_comes_after_a_while(void **state) {
    fixture *f = *state;
    put(f, 1, "tutti: rank 1: alone\n");
    tt__streams_serve(&f->streams);
    put(f, 0, "tutti: rank 0: another\n");
    tt__streams_serve(&f->streams);
    f->streams.merge_ms -= FLUSH_MS;
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: rank 1: alone\ntutti: rank 0: another\n");
}

static void lines_of_a_rank_keep_their_order(void **state) {
    fixture *f = *state;
    put(f, 0, "before\ntutti: rank 0: held\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "before\n");
    put(f, 1, "another rank's\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "another rank's\n");
    put(f, 0, "after\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: rank 0: held\nafter\n");
    put(f, 0, "tutti: rank 0: twice\ntutti: rank 0: twice\ntutti: rank x: \n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: rank 0: twice\ntutti: rank 0: twice\ntutti: rank x: \n");
}

static void lines_of_our_own_come_after_those_that_are_held(void **state) {
    fixture *f = *state;
    put(f, 0, "tutti: rank 0: held\nhalf a line");
    tt__streams_serve(&f->streams);
    tt__streams_drain(&f->streams, 0);
    tt__streams_print(&f->streams, "ours");
    tt__streams_flush(&f->streams, PATIENCE_MS);
    assert_string_equal(came_out(f), "tutti: rank 0: held\nhalf a line\nours\n");
}

static void lines_in_pieces_are_put_together(void **state) {
    fixture *f = *state;
    put(f, 0, "tutti: rank 0: in two ");
    tt__streams_serve(&f->streams);
    f->streams.of[0].pending_ms = INT64_MAX - FLUSH_MS;
    put(f, 0, "pieces\n");
    put(f, 1, "tutti: rank 1: in two pieces\n");
    tt__streams_serve(&f->streams);
    assert_string_equal(came_out(f), "tutti: ranks 0-1: in two pieces\n");
}

static void a_merged_line_names_its_ranks(void **state) {
    (void)state;
    tt__line_merge merge = {0};
    size_t n;
    assert_false(tt__merge_hold(&merge, 0, "tutti: ranks 0: x\n", 18));
    assert_false(tt__merge_hold(&merge, 0, "tutti: rank 0: x\0y\n", 19));
    assert_true(tt__merge_hold(&merge, 3, "tutti: rank 7: x\n", 17));
    assert_true(tt__merge_hold(&merge, 1, "tutti: rank 2: x\n", 17));
    assert_true(tt__merge_hold(&merge, 2, "tutti: rank 0: x\n", 17));
    assert_false(tt__merge_hold(&merge, 2, "tutti: rank 0: x\n", 17));
    assert_true(tt__merge_holds(&merge, 3));
    assert_false(tt__merge_holds(&merge, 0));
    assert_true(tt__merge_complete(&merge, 3));
    assert_false(tt__merge_complete(&merge, 4));
    char *line = tt__merge_take(&merge, &n);
    assert_string_equal(line, "tutti: ranks 0, 2, 7: x\n");
    assert_int_equal(n, strlen(line));
    free(line);
    assert_null(tt__merge_take(&merge, &n));
    assert_true(tt__merge_hold(&merge, 0, "tutti: rank 0: y\n", 17));
    tt__merge_free(&merge);
    assert_false(tt__merge_holds_any(&merge));
}

static void long_lines_come_whole(void **state) {
    fixture *f = *state;
    static char text[20001];
    for (int i = 0; i < 20000; i++)
        text[i] = (char)('a' + i % 26);
    put(f, 1, text);
    put(f, 1, "\n");
    for (int i = 0; i < 4; i++)
        tt__streams_serve(&f->streams);
    const char *all = came_out(f);
    assert_int_equal(strlen(all), 20001);
    assert_memory_equal(all, text, 20000);
}

static void nobody_waits_for_a_stuck_reader(void **state) {
    fixture *f = *state;
    static char kilobyte[1025];
    memset(kilobyte, 'x', 1023);
    kilobyte[1023] = '\n';
    fcntl(f->to[0], F_SETFL, O_NONBLOCK);
    long written = 0;
    for (int stuck = 0; stuck < 10; tt__streams_serve(&f->streams)) { /* returns, though nobody reads */
        ssize_t n = write(f->to[0], kilobyte, 1024);
        written += n > 0 ? n : 0;
        stuck = n > 0 ? 0 : stuck + 1;
    }
    assert_true(f->streams.out_used < 2 * OUT_HIGH); /* the worker waits, not the launcher's memory */
    long read_back = 0;
    close(f->to[0]);
    f->to[0] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (size_t n = 1; n; read_back += (long)n) {
        tt__streams_serve(&f->streams);
        n = strlen(came_out(f));
    }
    assert_int_equal(read_back, written);
}

static void the_tail_is_the_last_lines(void **state) {
    fixture *f = *state;
    char tail[TT__TAIL_BYTES + 1], line[64];
    assert_string_equal(tt__streams_tail(&f->streams, 0, tail), "");
    put(f, 0, "only\n");
    tt__streams_drain(&f->streams, 0);
    assert_string_equal(tt__streams_tail(&f->streams, 0, tail), "only\n");
    for (int i = 1; i <= 2000; i++) {
        snprintf(line, sizeof line, "line %d\n", i);
        put(f, 0, line);
        tt__streams_drain(&f->streams, 0);
        tt__streams_flush(&f->streams, PATIENCE_MS);
        came_out(f);
    }
    put(f, 0, "unfinished");
    tt__streams_drain(&f->streams, 0);
    tt__streams_tail(&f->streams, 0, tail);
    assert_memory_equal(tail, "line 1982\n", 10);
    assert_string_equal(strrchr(tail, '\n'), "\nunfinished");
}

static void a_closed_stderr_is_no_disaster(void **state) {
    fixture *f = *state;
    signal(SIGPIPE, SIG_IGN);
    close(f->out);
    put(f, 0, "lost\n");
    tt__streams_serve(&f->streams);
    tt__streams_print(&f->streams, "lost, too");
    tt__streams_flush(&f->streams, PATIENCE_MS);
    assert_true(f->streams.broken);
    f->out = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static tt__worker ended(int order, int status) {
    return (tt__worker){
        .ended = true, .status = status, .order = order, .when = {.realtime_ns = INT64_C(1000000000000)}};
}

enum { EXIT_1 = 1 << 8 };

static void the_first_failure_is_the_cause(void **state) {
    (void)state;
    tt__worker w[3] = {ended(2, EXIT_1), ended(1, EXIT_1), ended(0, 0)};
    assert_int_equal(tt__first_failure(w, 3), 1); /* the earliest that failed */
    w[1].secondary = true;
    assert_int_equal(tt__first_failure(w, 3), 0); /* but not one that says it is a consequence */
    w[0].sent_signal = SIGTERM;
    assert_int_equal(tt__first_failure(w, 3), 1); /* nor one that was told to end, if there is a choice */
    w[1].status = 0;
    assert_int_equal(tt__first_failure(w, 3), 0);
    w[0].status = 0;
    assert_int_equal(tt__first_failure(w, 3), -1);
}

/* Another node's clock may be ahead: who waited for the next round ended after whoever made it wait. */
static void who_waited_for_the_next_round_was_not_the_first(void **state) {
    (void)state;
    tt__worker w[2] = {ended(1, EXIT_1), ended(0, SIGKILL)};
    w[1].waited = true;
    assert_int_equal(tt__first_failure(w, 2), 0);
    assert_false(tt__is_consequence(&w[0]));
    assert_true(tt__is_consequence(&w[1]));
    w[0].secondary = true;
    assert_int_equal(tt__first_failure(w, 2), 0);
    w[0].sent_signal = SIGTERM;
    assert_int_equal(tt__first_failure(w, 2), 1); /* but no signal made it end */
    w[0].status = 0;
    assert_int_equal(tt__first_failure(w, 2), 1);
}

static void a_crash_comes_before_an_exit_code_in_a_tie(void **state) {
    (void)state;
    tt__worker w[2] = {ended(0, EXIT_1), ended(1, SIGKILL)};
    w[1].when.realtime_ns += (TT__TIE_MS - 1) * 1000000L;
    assert_int_equal(tt__first_failure(w, 2), 1);
    w[1].when.realtime_ns = w[0].when.realtime_ns + TT__TIE_MS * 1000000L;
    assert_int_equal(tt__first_failure(w, 2), 0);
    w[1].when = w[0].when;
    w[1].status = SIGABRT; /* what a peer's death can lead to */
    assert_int_equal(tt__first_failure(w, 2), 0);
}

/* Who ended first need not have failed first: error files say when, to the second. */
static void an_error_file_says_when(void **state) {
    (void)state;
    tt__worker w[3] = {ended(0, EXIT_1), ended(1, EXIT_1), ended(2, EXIT_1)};
    for (int i = 0; i < 3; i++)
        w[i].when.realtime_ns = (100 + i) * 1000000000L;
    w[2].error_s = 99;
    assert_int_equal(tt__first_failure(w, 3), 2);
    w[2].error_s = 100; /* perhaps before rank 0, perhaps after */
    assert_int_equal(tt__first_failure(w, 3), 0);
    w[2].error_s = 200; /* its clock is wrong: it has ended before */
    assert_int_equal(tt__first_failure(w, 3), 0);
    /* It had reported its failure before the launcher sent a signal. */
    w[2] = (tt__worker){.ended = true, .status = SIGTERM, .order = 2, .sent_signal = SIGTERM, .signal_s = 101};
    w[2].when.realtime_ns = 102 * 1000000000L;
    w[2].error_s = 99;
    assert_int_equal(tt__first_failure(w, 3), 2);
    w[2].error_s = 101; /* the signal may be why */
    assert_int_equal(tt__first_failure(w, 3), 0);
}

/* As ranks do whose calls differ; each may begin with its own number. */
static void some_fail_alike(void **state) {
    (void)state;
    tt__worker a = ended(0, EXIT_1), b = ended(1, EXIT_1);
    assert_false(tt__failed_alike(&a, 0, &b, 1)); /* they don't say why */
    a.message = (char *)(uintptr_t) "rank 0: call 1 differs";
    b.message = (char *)(uintptr_t) "rank 1: call 1 differs";
    assert_true(tt__failed_alike(&a, 0, &b, 1));
    assert_false(tt__failed_alike(&a, 0, &b, 2));
    b.secondary = true;
    assert_false(tt__failed_alike(&a, 0, &b, 1));
    b.secondary = false;
    b.status = 2 << 8;
    assert_false(tt__failed_alike(&a, 0, &b, 1));
    b.status = 0;
    assert_false(tt__failed_alike(&a, 0, &b, 1));
    a.status = b.status = SIGKILL; /* by the launcher, whose words these are then */
    assert_false(tt__failed_alike(&a, 0, &b, 1));
}

static void error_files_of_every_form(void **state) {
    (void)state;
    static const struct {
        const char *json, *message;
        bool secondary;
    } cases[] = {
        {"{\"message\": \"plain\"}", "plain", false},
        {"{\"message\": {\"message\": \"a\\nb \\u00e9\", \"extraInfo\": {\"py_callstack\": \"x\"}}}", "a\nb \xc3\xa9",
         false},
        {"{\"message\": {\"message\": \"peer\", \"extraInfo\": {\"secondary\": true}}}", "peer", true},
        {"{\"message\": 7}", NULL, false},
        {"[]", NULL, false},
        {"{\"mess", NULL, false},
        {"", NULL, false},
    };
    char path[] = "/tmp/tutti-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__worker worker = {0};
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, cases[i].json, strlen(cases[i].json), 0), (ssize_t)strlen(cases[i].json));
        take_error_file(open(path, O_RDONLY | O_CLOEXEC), &worker);
        assert_int_equal(worker.secondary, cases[i].secondary);
        if (cases[i].message)
            assert_string_equal(worker.message, cases[i].message);
        else
            assert_null(worker.message);
        if (worker.traceback)
            assert_string_equal(worker.traceback, "x");
        assert_int_equal(worker.traceback != NULL, strstr(cases[i].json, "py_callstack") != NULL);
        free(worker.message);
    }
    close(fd);
    unlink(path);
}

/* In a TMPDIR where others may write, they can rename the folder and put another one there. */
static void only_the_folder_that_was_made_is_removed(void **state) {
    (void)state;
    char place[] = "/tmp/tutti-test-XXXXXX", moved[sizeof place + 8], file[sizeof place + 24];
    tt__job job = {0};
    struct stat info;
    assert_non_null(mkdtemp(place));
    snprintf(job.error_dir, sizeof job.error_dir, "%s/errors", place);
    snprintf(moved, sizeof moved, "%s/moved", place);
    snprintf(file, sizeof file, "%s/errors/worker-0.json", place);
    assert_int_equal(tt__job_error_dir_make(&job), 0);
    assert_int_equal(rename(job.error_dir, moved), 0);
    assert_int_equal(mkdir(job.error_dir, 0700), 0);
    tt__job_error_dir_remove(&job);
    assert_int_equal(stat(job.error_dir, &info), 0);
    assert_int_equal(rmdir(job.error_dir), 0);

    assert_int_equal(rename(moved, job.error_dir), 0);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    tt__job_error_dir_clear(&job);
    assert_int_not_equal(stat(file, &info), 0);
    tt__job_error_dir_remove(&job);
    assert_int_not_equal(stat(job.error_dir, &info), 0);

    tt__job unknown = {0}; /* its keeper was killed before it said which folder it had made */
    snprintf(unknown.error_dir, sizeof unknown.error_dir, "%s/errors", place);
    assert_int_equal(mkdir(unknown.error_dir, 0700), 0);
    tt__job_error_dir_remove(&unknown);
    assert_int_equal(rmdir(unknown.error_dir), 0);
    assert_int_equal(rmdir(place), 0);
}

/* Of another node, whose launcher may say anything. */
static void reports_stand_any_words_and_times(void **state) {
    fixture *f = *state;
    char message[] = "\033[2Jall is well\a\n\rno";
    tt__worker workers[2] = {
        {.ended = true, .status = SIGKILL, .when = {.realtime_ns = INT64_MIN}, .message = message},
        {.ended = true, .status = SIGSEGV, .order = 1, .when = {.realtime_ns = INT64_MAX}},
    };
    tt__moment started = {.realtime_ns = INT64_MAX};
    tt__first first = {.hostname = "\033[31mhost", .worker = &workers[0], .tail = ""};
    assert_int_equal(tt__first_failure(workers, 2), 0);
    tt__report_first(&f->streams, &(tt__job){.workers = 2}, &first, &started);
    tt__streams_flush(&f->streams, PATIENCE_MS);
    char text[4096] = "";
    assert_true(read(f->out, text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "all is well\n"));
    assert_null(strpbrk(text, "\033\a\r"));
}

static void reports_show_a_progress_bar_as_it_was_last(void **state) {
    fixture *f = *state;
    tt__worker worker = {.ended = true, .status = 1 << 8};
    tt__moment started = {0};
    tt__first first = {.worker = &worker, .tail = "  0%\r 50%\r100%\nplain\r\n\r\n\rkilled at 7%"};
    tt__report_first(&f->streams, &(tt__job){.workers = 1}, &first, &started);
    tt__streams_flush(&f->streams, PATIENCE_MS);
    const char *lines = strstr(came_out(f), "stderr:\n");
    assert_non_null(lines);
    assert_string_equal(lines, "stderr:\n    | 100%\n    | plain\n    | \n    | killed at 7%\n");
}

/* The list of the ranks was cut in the middle of a number, which named a rank that had ended in another way. */
static void a_list_without_room_tells_how_many_more(void **state) {
    enum { N = 600 };
    fixture *f = *state;
    tt__worker workers[N] = {0};
    const tt__job job = {.workers = N};
    int listed = 1, last = 0, more = 0;
    for (int i = 0; i < N; i++)
        workers[i] = ended(i, (3 + i % 2) << 8);
    tt__report_others(&f->streams, &job, workers, -1);
    tt__streams_flush(&f->streams, PATIENCE_MS);
    const char *text = came_out(f), *end = strstr(text, " and ");
    assert_non_null(end);
    for (const char *at = text; (at = strstr(at, ", ")) && at < end; listed++)
        assert_int_equal((last = atoi(at += 2)) % 2, 0);
    assert_int_equal(sscanf(end, " and %d more: exit code 3\n", &more), 1);
    assert_int_equal(listed + more, N / 2);
    assert_int_equal(last, 2 * (listed - 1));
}

/* The other workers get SIGKILL at once then, which has nothing to do with ranks that could not be started either. */
static void a_rank_without_a_process_has_no_pid_and_got_no_signal(void **state) {
    fixture *f = *state;
    tt__worker workers[2] = {ended(0, 127 << 8), ended(1, 127 << 8)};
    const tt__job job = {.workers = 2, .file = "prog"};
    const tt__moment started = {.realtime_ns = INT64_C(1000000000000)};
    workers[0].exec_errno = workers[1].exec_errno = EAGAIN;
    workers[1].sent_signal = SIGKILL;
    const tt__first first = {.worker = &workers[0], .tail = ""};
    tt__report_first(&f->streams, &job, &first, &started);
    tt__report_others(&f->streams, &job, workers, 0);
    tt__streams_flush(&f->streams, PATIENCE_MS);
    const char *text = came_out(f);
    assert_non_null(strstr(text, "(local rank 0, at "));
    assert_non_null(strstr(text, "\ntutti run: rank 1: could not be started: Resource temporarily unavailable\n"));
}

static void every_signal_has_a_name(void **state) {
    char text[32];
    (void)state;
    assert_string_equal(tt__signal_name(SIGKILL, text, sizeof text), "SIGKILL");
    assert_string_equal(tt__signal_name(SIGRTMIN + 1, text, sizeof text), "SIGRTMIN+1");
    assert_string_equal(tt__signal_name(33, text, sizeof text), "signal 33");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_fails_before_the_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_do_not_mix_inside_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_prompt_goes_out_after_a_while, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_all_say_is_one_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_that_name_each_other_say_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_all_report_is_one_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_that_name_themselves_say_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_one_says_comes_after_a_while, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_of_a_rank_keep_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_of_our_own_come_after_those_that_are_held, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_in_pieces_are_put_together, set_up, tear_down),
        cmocka_unit_test(a_merged_line_names_its_ranks),
        cmocka_unit_test_setup_teardown(long_lines_come_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_stuck_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_tail_is_the_last_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_closed_stderr_is_no_disaster, set_up, tear_down),
        cmocka_unit_test(the_first_failure_is_the_cause),
        cmocka_unit_test(who_waited_for_the_next_round_was_not_the_first),
        cmocka_unit_test(a_crash_comes_before_an_exit_code_in_a_tie),
        cmocka_unit_test_setup_teardown(reports_stand_any_words_and_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reports_show_a_progress_bar_as_it_was_last, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_without_room_tells_how_many_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_without_a_process_has_no_pid_and_got_no_signal, set_up, tear_down),
        cmocka_unit_test(every_signal_has_a_name),
        cmocka_unit_test(an_error_file_says_when),
        cmocka_unit_test(some_fail_alike),
        cmocka_unit_test(error_files_of_every_form),
        cmocka_unit_test(only_the_folder_that_was_made_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
