/* SyncBatchNorm in a job that loses ranks and takes in others: each step's statistics are those of all ranks that there
 * are, as found by hand, before a rank's death and after it. */
#include "support/elastic_job.h"
#include "support/own_folder.h"

#include <tutti/tutti.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { START = 3, STEPS = 9, BATCH = 4, INPUTS = 5, CHANNELS = 6 };

/* ---- the workers */

typedef struct Run {
    tt_elastic *job;
    tt_module *linear, *model, *ddp;
    tt_optimizer *sgd;
    int64_t step;
    int die_rank, die_step; /* in the first round; -1: none */
} Run;

/* A test fails as the worker does: with an error. */
static tt_status check(bool good, const char *what) { return good ? TT_OK : tt_fail(TT_ERR_STATE, "%s", what); }

/* Means of all ranks' batches together, by sums in f64. */
static tt_status means_by_hand(const Run *r, tt_group *world, tt_tensor *x, double means[CHANNELS]) {
    TT_NO_GRAD;
    double rows = BATCH * tt_get_world_size(world);
    const float *h = tt_tensor_f32(tt_module_forward(r->linear, x));
    if (!h)
        return tt_last_status();
    for (int c = 0; c < CHANNELS; c++) {
        means[c] = 0;
        for (int b = 0; b < BATCH; b++)
            means[c] += (double)h[b * CHANNELS + c] / rows;
    }
    return tt_all_reduce(world, means, CHANNELS, TT_F64, TT_SUM);
}

static tt_status take_step(Run *r) {
    TT_AUTO_SCOPE;
    tt_group *world = tt_elastic_group(r->job);
    const tt_elastic_change *change = tt_elastic_changed(r->job);
    int rank = tt_get_rank(world);
    if (rank == r->die_rank && (!change || !change->round) && r->step == r->die_step)
        raise(SIGKILL);
    tt_generator *g = tt_generator_new((uint64_t)(100 * r->step + rank));
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, INPUTS), g);
    tt_generator_free(g);
    double means[CHANNELS];
    float before[CHANNELS];
    const float *running = tt_tensor_f32(tt_named_tensors_find(tt_module_buffers(r->model), "1.running_mean"));
    if (!x || !running || means_by_hand(r, world, x, means))
        return tt_last_status();
    tt_optimizer_zero_grad(r->sgd);
    memcpy(before, running, sizeof before);
    /* Rank 0's buffers are those that count, and all have the same. */
    if (tt_broadcast(world, before, CHANNELS, TT_F32, 0) || check(!memcmp(before, running, sizeof before), "buffers"))
        return tt_last_status();
    tt_tensor *y = tt_module_forward(r->ddp, x);
    if (!y || tt_backward(tt_mean(tt_mul(y, y))))
        return tt_last_status();
    for (int c = 0; c < CHANNELS; c++)
        if (check(fabs(0.9 * (double)before[c] + 0.1 * means[c] - (double)running[c]) < 1e-5, "not all ranks' mean"))
            return tt_last_status();
    return tt_optimizer_step(r->sgd);
}

static tt_status set_up(Run *r) {
    tt_manual_seed(1);
    r->linear = tt_nn_linear(INPUTS, CHANNELS);
    r->model = tt_nn_sequential(r->linear, tt_nn_batch_norm1d(CHANNELS), tt_nn_relu(), tt_nn_linear(CHANNELS, 2));
    r->sgd = tt_sgd(tt_module_parameters(r->model), 0.1, .momentum = 0.9);
    r->ddp = tt_elastic_ddp(r->job, "model", r->model, .sync_batch_norm = true);
    if (!r->ddp || tt_elastic_add_optimizer(r->job, "sgd", r->sgd))
        return tt_last_status();
    return tt_elastic_add(r->job, "step", &r->step, sizeof r->step);
}

static tt_status train(Run *r) {
    tt_status status = tt_elastic_restore(r->job);
    while (!status && r->step < STEPS) {
        status = take_step(r);
        r->step += !status;
        if (!status)
            status = tt_elastic_commit(r->job);
        if (status && status != TT_ERR_STATE)
            status = tt_elastic_restore(r->job);
    }
    return status;
}

static int run_worker(const char *mode) {
    Run r = {.die_rank = -1};
    sscanf(mode, "%d:%d", &r.die_rank, &r.die_step);
    if (tt_elastic_new(&r.job, .heartbeat_ms = CALM_MS))
        return tt_report(), 1;
    tt_status status = set_up(&r);
    if (!status)
        status = train(&r);
    tt_group *world = tt_elastic_group(r.job);
    if (!status && tt_get_rank(world) == 0) {
        FILE *f = fopen("ended", "w");
        if (!f || fprintf(f, "%d %d", tt_get_world_size(world), (int)r.step) < 0 || fclose(f))
            status = tt_fail(TT_ERR_IO, "no file");
    }
    if (status)
        tt_report();
    tt_optimizer_free(r.sgd);
    tt_module_free(r.ddp);
    tt_module_free(r.model);
    tt_elastic_free(r.job);
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

static void the_ranks_that_are_left_have_their_statistics(void **state) {
    (void)state;
    static const char *const cases[] = {"-1:0", "0:3", "2:5"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.mode = cases[i], .world = START, .policy = JOB_SHRINKS};
        run_job(&j, i ? START - 1 : START);
    }
}

static void a_rank_that_joins_has_part_in_them(void **state) {
    (void)state;
    job j = {.mode = "1:4", .world = START, .policy = JOB_REPLACES};
    run_job(&j, START);
    assert_int_equal(j.failures, 1);
}

int main(int argc, char **argv) {
    elastic_job_begin(argc, argv, run_worker);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ranks_that_are_left_have_their_statistics),
        cmocka_unit_test(a_rank_that_joins_has_part_in_them),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
