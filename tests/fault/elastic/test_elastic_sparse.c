/* A table with sparse gradients in a job that loses ranks and takes in others, also in the middle of a pass: each step
 * moves the rows that the ranks there are have read, by what is found by hand, and no others. */
#include "support/elastic_job.h"
#include "support/own_folder.h"

#include <tutti/tutti.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { START = 3, STEPS = 9, TABLE = 20, COLUMNS = 3, READ = 4 };
static const double rate = 0.5;

/* ---- the workers */

typedef struct worker {
    tt_elastic *job;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    int64_t step;
    int die_rank, die_step; /* in the first round; -1: none */
} worker;

static int64_t row_read(int64_t step, int rank, int i) { return (step * 5 + rank * 3 + (int64_t)i * i) % TABLE; }

static tt_tensor *the_table(const worker *w) { return tt_module_parameters(w->model)->tensors[0]; }

static tt_status die_in_pass(tt_tensor *x, void *user) {
    const worker *w = user;
    const tt_elastic_change *change = tt_elastic_changed(w->job);
    (void)x;
    if (tt_get_rank(tt_elastic_group(w->job)) == w->die_rank && (!change || !change->round) && w->step == w->die_step)
        raise(SIGKILL);
    return TT_OK;
}

/* The loss is the sum of what is read: a row's gradient is how often it was read, by all ranks, as a mean. */
static tt_status check_moved(const worker *w, const float before[TABLE * COLUMNS]) {
    const int world = tt_get_world_size(tt_elastic_group(w->job));
    double times[TABLE] = {0};
    for (int rank = 0; rank < world; rank++)
        for (int i = 0; i < READ; i++)
            times[row_read(w->step, rank, i)]++;
    const float *now = tt_tensor_f32(the_table(w));
    for (int k = 0; k < TABLE * COLUMNS; k++) {
        double expected = (double)before[k] - rate * times[k / COLUMNS] / world;
        if (fabs(expected - (double)now[k]) > 1e-5 || (times[k / COLUMNS] == 0 && before[k] != now[k]))
            return tt_fail(TT_ERR_STATE, "row %d: expected %g, got %g", k / COLUMNS, expected, (double)now[k]);
    }
    return TT_OK;
}

static tt_status take_step(worker *w) {
    TT_AUTO_SCOPE;
    const int rank = tt_get_rank(tt_elastic_group(w->job));
    int64_t row[READ];
    float before[TABLE * COLUMNS];
    for (int i = 0; i < READ; i++)
        row[i] = row_read(w->step, rank, i);
    memcpy(before, tt_tensor_f32(the_table(w)), sizeof before);
    tt_optimizer_zero_grad(w->sgd);
    tt_tensor *x = tt_from_data(row, TT_SHAPE(READ), TT_I64);
    if (tt_backward(tt_sum(tt_module_forward(w->ddp, x))) || tt_optimizer_step(w->sgd))
        return tt_last_status();
    return check_moved(w, before);
}

static tt_status set_up(worker *w) {
    tt_manual_seed(1);
    w->model = tt_nn_sequential(tt_nn_embedding(TABLE, COLUMNS, .sparse = true));
    w->sgd = tt_sgd(tt_module_parameters(w->model), rate);
    w->ddp = tt_elastic_ddp(w->job, "model", w->model);
    if (!w->ddp || tt_register_post_accumulate_grad_hook(the_table(w), die_in_pass, w) ||
        tt_elastic_add_optimizer(w->job, "sgd", w->sgd))
        return tt_last_status();
    return tt_elastic_add(w->job, "step", &w->step, sizeof w->step);
}

static tt_status train(worker *w) {
    tt_status status = tt_elastic_restore(w->job);
    while (!status && w->step < STEPS) {
        status = take_step(w);
        w->step += !status;
        if (!status)
            status = tt_elastic_commit(w->job);
        if (status && status != TT_ERR_STATE)
            status = tt_elastic_restore(w->job);
    }
    return status;
}

static int run_worker(const char *mode) {
    worker w = {.die_rank = -1};
    sscanf(mode, "%d:%d", &w.die_rank, &w.die_step);
    if (tt_elastic_new(&w.job, .heartbeat_ms = CALM_MS))
        return tt_report(), 1;
    tt_status status = set_up(&w);
    if (!status)
        status = train(&w);
    tt_group *world = tt_elastic_group(w.job);
    if (!status && tt_get_rank(world) == 0) {
        FILE *f = fopen("ended", "w");
        if (!f || fprintf(f, "%d %d", tt_get_world_size(world), (int)w.step) < 0 || fclose(f))
            status = tt_fail(TT_ERR_IO, "no file");
    }
    if (status)
        tt_report();
    tt_optimizer_free(w.sgd);
    tt_module_free(w.ddp);
    tt_module_free(w.model);
    tt_elastic_free(w.job);
    return status != TT_OK;
}

/* ---- the tests */

static void run_job(job *j, int world) {
    int got = 0, steps = 0;
    unlink("ended");
    if (!job_run(j))
        fail_msg("the job did not end: mode %s, round %d", j->mode, j->round);
    assert_int_equal(j->unknown, 0);
    FILE *f = fopen("ended", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d %d", &got, &steps), 2);
    fclose(f);
    assert_int_equal(got, world);
    assert_int_equal(steps, STEPS);
}

static void the_ranks_that_are_left_average_their_rows(void **state) {
    (void)state;
    static const char *const cases[] = {"-1:0", "0:3", "2:5"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.mode = cases[i], .world = START, .policy = JOB_SHRINKS};
        run_job(&j, i ? START - 1 : START);
    }
}

static void a_rank_that_joins_gives_its_rows(void **state) {
    (void)state;
    job j = {.mode = "1:4", .world = START, .policy = JOB_REPLACES};
    run_job(&j, START);
    assert_int_equal(j.failures, 1);
}

int main(int argc, char **argv) {
    elastic_job_begin(argc, argv, run_worker);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ranks_that_are_left_average_their_rows),
        cmocka_unit_test(a_rank_that_joins_gives_its_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
