/* Recovery without a restart: ranks are killed at chosen and at random moments, in steps, in commits, while others
 * restore and while they join. Where they are replaced, the final parameters are to the bit those of a plain DDP
 * program that nobody disturbed. Where the job shrinks or grows, each example of an epoch is trained on exactly
 * once. */
#include "fault/elastic/elastic_worker.h"
#include "support/elastic_job.h"
#include "support/own_folder.h"
#include "support/storm.h"

enum { MAX_COMMITS = 400 };

enum { FINAL = (FEATURES * 8 + 8 + 8 * 2 + 2) * 4 + 16 };

typedef struct bytes {
    char data[FINAL];
    size_t size;
} bytes;

static bytes read_final(int rank) {
    bytes b = {.size = 0};
    char path[64];
    snprintf(path, sizeof path, "final.%d", rank);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b.size = fread(b.data, 1, sizeof b.data, f);
    fclose(f);
    return b;
}

static void forget_files(void) {
    unlink("audit");
    for (int r = 0; r < JOB_RANKS; r++) {
        char path[64];
        snprintf(path, sizeof path, "final.%d", r);
        unlink(path);
    }
}

/* Run a job; all that was not killed ends as it should. */
static void run_job(job *j, const char *faults) {
    forget_files();
    setenv("E_FAULTS", faults, 1);
    if (!job_run(j))
        fail_msg("the job did not end: faults %s, round %d", faults, j->round);
    if (j->unknown)
        fail_msg("%d workers failed: faults %s, round %d", j->unknown, faults, j->round);
}

static void assert_final(const bytes *expected, int world, const char *what) {
    for (int r = 0; r < world; r++) {
        bytes b = read_final(r);
        if (b.size != expected->size || memcmp(b.data, expected->data, b.size) != 0)
            fail_msg("%s: the final parameters of rank %d of %d differ from the undisturbed run's", what, r, world);
    }
}

static bytes plain_result(int world) {
    job j = {.mode = "plain", .world = world};
    run_job(&j, "");
    bytes b = read_final(0);
    assert_final(&b, world, "a plain program");
    return b;
}

/* Each example was trained on once in each epoch, in the steps that count; but for so many repeats, which fill up what
 * the number of ranks does not divide. */
static void assert_each(const char *what, int repeats) {
    static int last_round[MAX_COMMITS];
    static int times[EPOCHS][SAMPLES];
    char line[256];
    memset(last_round, -1, sizeof last_round);
    memset(times, 0, sizeof times);
    FILE *f = fopen("audit", "r");
    assert_non_null(f);
    for (int pass = 0; pass < 2; pass++) {
        rewind(f);
        while (fgets(line, sizeof line, f)) {
            int commit, round, rank, epoch, used, index, more;
            assert_int_equal(sscanf(line, "%d %d %d %d:%n", &commit, &round, &rank, &epoch, &used), 4);
            assert_true(commit > 0 && commit < MAX_COMMITS && epoch < EPOCHS);
            if (!pass && round > last_round[commit])
                last_round[commit] = round;
            for (const char *at = line + used;
                 pass && round == last_round[commit] && sscanf(at, " %d%n", &index, &more) == 1; at += more)
                times[epoch][index]++;
        }
    }
    fclose(f);
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0, again = 0; i < SAMPLES; i++)
            if (times[e][i] < 1 || (again += times[e][i] - 1) > repeats)
                fail_msg("%s: example %d was trained on %d times in epoch %d", what, i, times[e][i], e);
}

static void assert_each_once(const char *what) { assert_each(what, 0); }

static void undisturbed_is_plain_ddp(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++) {
        bytes expected = plain_result(world);
        job j = {.mode = "elastic", .world = world};
        run_job(&j, "");
        assert_int_equal(j.round, 0);
        assert_final(&expected, world, "undisturbed");
        assert_each_once("undisturbed");
    }
}

static void a_replaced_rank_changes_no_bit(void **state) {
    (void)state;
    static const char *const cases[] = {"step:1:0:5",
                                        "step:0:0:9", /* rank 0's store is the launcher's */
                                        "mid:1:0:7",
                                        "save:1:0:6",
                                        "mid:0:0:1",
                                        "step:1:0:3,step:0:1:3",
                                        "step:1:0:4,join:1:1:0",
                                        "step:1:0:4,bind:1:1:0",
                                        "step:1:0:4,bind:0:1:0",
                                        "step:1:0:4,load:0:1:0,step:1:2:11",
                                        "bind:1:0:0",
                                        "load:0:0:0"};
    bytes expected = plain_result(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.mode = "elastic", .world = 2};
        run_job(&j, cases[i]);
        assert_true(j.round > 0 && j.failures > 0);
        assert_final(&expected, 2, cases[i]);
        assert_each_once(cases[i]);
    }
}

/* ---- fewer ranks, and more ---- */

/* Has so much been trained, or so much time passed? */
static bool is_due(const job *j) {
    struct stat info;
    if (j->due_ms && tt__now_ms() < j->due_ms)
        return false;
    return !j->due_bytes || (stat("audit", &info) == 0 && info.st_size >= j->due_bytes);
}

static void the_rest_is_shared_by_fewer(void **state) {
    (void)state;
    static const char *const cases[] = {"step:2:0:5", "step:0:0:3", "step:1:0:8", "step:2:0:4,step:0:1:9"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.mode = "elastic", .world = 3, .policy = JOB_SHRINKS};
        run_job(&j, cases[i]);
        assert_int_equal(j.world, i < 3 ? 2 : 1);
        assert_each_once(cases[i]); /* 96 - 12 k is even */
        bytes b = read_final(0);
        assert_final(&b, j.world, cases[i]);
    }
}

static void two_join(job *j) {
    if (j->events && is_due(j)) {
        j->events = 0;
        job_want_more(j, 2);
    }
}

static void the_rest_is_shared_by_more(void **state) {
    (void)state;
    for (int lines = 1; lines < 80; lines += 25) {
        job j = {.mode = "elastic", .world = 2, .happen = two_join, .events = 1, .due_bytes = lines * 18};
        run_job(&j, "");
        if (j.grow) /* it was over before a rank looked */
            continue;
        assert_int_equal(j.world, 4);
        assert_int_equal(j.round, 1);
        assert_each_once("four instead of two"); /* 96 - 8 k is a multiple of 4 */
        bytes b = read_final(0);
        assert_final(&b, 4, "four instead of two");
    }
}

/* ---- ends ---- */

static void one_is_told(job *j) {
    if (!j->events || !is_due(j))
        return;
    j->events = 0;
    kill(job_worker_of_rank(j, j->world - 1)->pid, j->world == 2 ? SIGTERM : SIGUSR1);
}

static void all_stop_after_the_same_step(void **state) {
    (void)state;
    setenv("E_EPOCHS", "100000", 1);
    for (int world = 2; world <= 3; world++) {
        int signal = world == 2 ? SIGTERM : SIGUSR1;
        job j = {.mode = "elastic", .world = world, .happen = one_is_told, .events = 1, .due_bytes = 2000};
        run_job(&j, "");
        assert_int_equal(j.failures, 0);
        for (int r = 0; r < world; r++) {
            assert_true(WIFEXITED(j.workers[r].status));
            assert_int_equal(WEXITSTATUS(j.workers[r].status), 128 + signal);
            assert_int_equal(j.workers[r].stopped_by, signal);
        }
        bytes b = read_final(0);
        assert_final(&b, world, "stopped");
    }
    unsetenv("E_EPOCHS");
}

static const char *error_of(int rank) {
    static char text[2200];
    char path[64];
    snprintf(path, sizeof path, "error.%d", rank);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void assert_says(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text);
}

/* A launcher that knows nothing of rounds. */
static void without_a_round_it_ends_in_time(void **state) {
    (void)state;
    job j = {.mode = "elastic", .world = 2, .policy = JOB_NEVER_ANSWERS};
    setenv("E_WAIT", "300", 1);
    setenv("E_QUIET", "1", 1);
    setenv("E_FAULTS", "step:1:0:5", 1);
    assert_true(job_run(&j));
    unsetenv("E_WAIT");
    assert_int_equal(j.failures, 2);
    assert_int_equal(j.workers[0].lost, 1 + 1);
    assert_says(error_of(0), "TT_ERR_TIMEOUT: the launcher announced no round within 300 ms");
    assert_says(error_of(0), "before this: rank 1");
}

static void waiting_ones_are_told(job *j) {
    tt__recovery words;
    const job_worker *w = job_worker_of_rank(j, 0);
    if (j->events && w && job_words(w, &words) && words.wants_round == 1) {
        j->events = 0;
        kill(w->pid, SIGTERM);
    }
}

static void a_signal_ends_the_wait(void **state) {
    (void)state;
    job j = {.mode = "elastic", .world = 2, .policy = JOB_NEVER_ANSWERS, .happen = waiting_ones_are_told, .events = 1};
    setenv("E_FAULTS", "mid:1:0:5", 1);
    assert_true(job_run(&j));
    assert_says(error_of(0), "TT_ERR_ABORTED: while this rank waited for the job's next round, after rank 1");
    bytes b = read_final(0);
    assert_true(b.size > 8 && !memcmp(b.data + b.size - 7, "4 steps", 7)); /* those that were committed */
}

static void left_out_it_says_so(void **state) {
    (void)state;
    job j = {.mode = "elastic", .world = 3, .policy = JOB_SHRINKS, .drop = 2 + 1};
    forget_files();
    setenv("E_FAULTS", "step:0:0:5", 1);
    assert_true(job_run(&j));
    unsetenv("E_QUIET");
    assert_int_equal(j.world, 1);
    assert_says(error_of(2), "TT_ERR_PEER: the job goes on without this process, which was rank 2 of 3: ");
    assert_each_once("one is left");
}

/* ---- the library's trainer ---- */

static void the_librarys_trainer_goes_on(void **state) {
    (void)state;
    static const char *const cases[] = {"", "step:1:0:5", "step:0:0:12", "eval:1:0:12", "step:1:0:13,eval:0:1:24"};
    job plain = {.mode = "plain trainer", .world = 2};
    run_job(&plain, "");
    bytes expected = read_final(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.mode = "trainer", .world = 2};
        run_job(&j, cases[i]);
        assert_true(!i == !j.round);
        assert_final(&expected, 2, cases[i]);
        assert_each_once(cases[i]);
    }
    job fewer = {.mode = "trainer", .world = 3, .policy = JOB_SHRINKS};
    run_job(&fewer, "step:2:0:5");
    assert_int_equal(fewer.world, 2);
    assert_each_once("the trainer with fewer");
    job told = {.mode = "trainer", .world = 2, .happen = one_is_told, .events = 1, .due_bytes = 2000};
    setenv("E_EPOCHS", "100000", 1);
    run_job(&told, "");
    unsetenv("E_EPOCHS");
    for (int r = 0; r < 2; r++)
        assert_int_equal(WEXITSTATUS(told.workers[r].status), 128 + SIGTERM);
    bytes b = read_final(0);
    assert_final(&b, 2, "the trainer, stopped");
}

/* ---- the examples ---- */

static const char *example(const char *name) {
    static char path[512];
    const char *build = getenv("TT_BUILD");
    if (!build)
        skip(); /* only ctest says where they are */
    snprintf(path, sizeof path, "%s/examples/%s", build, name);
    return path;
}

static void the_example_goes_on(void **state) {
    (void)state;
    const char *program[] = {example("elastic_train"), "--lose", "20", NULL};
    job j = {.world = 2, .program = program};
    unlink("out");
    run_job(&j, "");
    size_t size;
    char *text = (char *)slurp("out", &size);
    text[size] = '\0';
    assert_says(text, "round 1: rank 0 of 2 (was 0 of 2) goes on after step 19: 1 ranks were lost so far");
    assert_says(text, "round 1: rank 1 of 2 (new) goes on after step 19\n");
    assert_says(text, "y = 2.00 x + 1.00 after 128 steps");
    free(text);
}

static void one_is_killed(job *j) {
    if (!j->due_ms)
        j->due_ms = tt__now_ms() + (int64_t)storm_below(&j->state, 2000);
    if (j->events && is_due(j)) {
        j->events = 0;
        job_kill(j, 1); /* rank 0 saves, maybe when the other has ended */
    }
}

/* mnist_trainer's last checkpoint is the same file, whenever a rank was lost. */
static void the_trainer_goes_on(void **state) {
    (void)state;
    if (getenv("TT_SANITIZED"))
        skip(); /* its data alone take a minute there */
    const char *program[] = {example("mnist_trainer"), "--elastic",          "--epochs=1", "--lr=0.1",
                             "--momentum=0.9",         "--checkpoint=saved", NULL};
    size_t sizes[2];
    unsigned char *files[2];
    for (int i = 0; i < 2; i++) {
        job j = {.world = 2, .program = program, .happen = one_is_killed, .events = i, .state = storm_case(0)};
        unlink("saved");
        run_job(&j, "");
        struct stat info;
        assert_int_equal(stat("saved", &info), 0);
        files[i] = malloc((size_t)info.st_size);
        FILE *f = fopen("saved", "rb");
        assert_true(f && files[i]);
        sizes[i] = fread(files[i], 1, (size_t)info.st_size, f);
        fclose(f);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(files[0], files[1], sizes[0]);
    free(files[0]);
    free(files[1]);
}

/* ---- a storm ---- */

static void draw_event(job *j) {
    j->due_ms = j->due_bytes = 0;
    if (storm_below(&j->state, 3))
        j->due_bytes = 1 + (long)storm_below(&j->state, 2200);
    else
        j->due_ms = tt__now_ms() + (int64_t)storm_below(&j->state, 60);
}

/* Kill a random rank, or let one more join, at a random moment. Never the last one that may have the state. */
static void something_happens(job *j) {
    int living = 0;
    if (!j->due_ms && !j->due_bytes)
        draw_event(j);
    if (!j->events || !is_due(j))
        return;
    j->events--;
    draw_event(j);
    for (int r = 0; r < j->world; r++) {
        const job_worker *w = job_worker_of_rank(j, r);
        living += w && !w->killed;
    }
    if (j->policy == JOB_SHRINKS && !j->grow && j->world < 5 && !storm_below(&j->state, 3))
        job_want_more(j, 1);
    else if (living > 1)
        job_kill(j, (int)storm_below(&j->state, (size_t)j->world));
}

/* One that is killed when all have passed the last barrier is replaced by nobody. */
static void assert_well_ended(const job *j, const char *what) {
    int well = 0;
    for (int i = 0; i < j->started; i++)
        well += j->workers[i].status == 0;
    if (!well)
        fail_msg("%s: no rank came to the end", what);
}

static void assert_finals_there(const job *j, const bytes *expected, const char *what) {
    for (int i = 0; i < j->started; i++) {
        const job_worker *w = &j->workers[i];
        bytes b;
        if (w->status)
            continue;
        b = read_final(w->rank);
        if (b.size != expected->size || memcmp(b.data, expected->data, b.size) != 0)
            fail_msg("%s: the final parameters of rank %d differ from the undisturbed run's", what, w->rank);
    }
}

static void a_storm_changes_nothing(void **state) {
    (void)state;
    bytes expected[5];
    for (int world = 2; world <= 4; world++)
        expected[world] = plain_result(world);
    for (long i = 0, cases = storm_cases(12); i < cases; i++) {
        if (storm_skips(i))
            continue;
        char what[64];
        job j = {.mode = "elastic", .state = storm_case(i), .happen = something_happens};
        j.world = 2 + (int)storm_below(&j.state, 3);
        j.policy = storm_below(&j.state, 2) ? JOB_REPLACES : JOB_SHRINKS;
        j.events = 1 + (int)storm_below(&j.state, 3);
        bool tcp = !storm_below(&j.state, 3), secret = storm_below(&j.state, 2);
        setenv("TT_TRANSPORT", tcp ? "tcp" : "", 1);
        setenv("TT_SECRET", secret ? "what only this job's processes know" : "", 1);
        int world = j.world;
        snprintf(what, sizeof what, "case %ld: %s%d ranks%s%s", i, j.policy == JOB_REPLACES ? "" : "changing, ", world,
                 tcp ? ", tcp" : "", secret ? ", a secret" : "");
        printf("%s\n", what);
        fflush(stdout);
        run_job(&j, "");
        if (getenv("TT_STORM_TIMES"))
            printf("  %d rounds, %lld ms\n", j.round, (long long)(tt__now_ms() - j.began_ms));
        assert_well_ended(&j, what);
        if (j.policy == JOB_REPLACES)
            assert_finals_there(&j, &expected[world], what);
        else
            assert_each(what, 4 * j.round);
    }
    unsetenv("TT_TRANSPORT");
    unsetenv("TT_SECRET");
}

int main(int argc, char **argv) {
    elastic_job_begin(argc, argv, run_worker);
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed_is_plain_ddp),     cmocka_unit_test(a_replaced_rank_changes_no_bit),
        cmocka_unit_test(the_rest_is_shared_by_fewer),  cmocka_unit_test(the_rest_is_shared_by_more),
        cmocka_unit_test(all_stop_after_the_same_step), cmocka_unit_test(without_a_round_it_ends_in_time),
        cmocka_unit_test(a_signal_ends_the_wait),       cmocka_unit_test(left_out_it_says_so),
        cmocka_unit_test(the_librarys_trainer_goes_on), cmocka_unit_test(the_example_goes_on),
        cmocka_unit_test(the_trainer_goes_on),          cmocka_unit_test(a_storm_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
