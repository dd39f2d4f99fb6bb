/* Virtual ranks in a job that loses ranks and takes in others: whatever happens, parameters and running statistics are
 * to the bit those of one rank that nobody disturbed. The model has batch norm and dropout. */
#include "support/elastic_job.h"
#include "support/own_folder.h"

#include <tutti/tutti.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SHARDS = 12, BATCH = 4, EXAMPLES = 210, EPOCHS = 2, START = 4 };

/* ---- the workers */

typedef struct Run {
    tt_elastic *job;
    int die_rank, die_step; /* in the first round; -1: none */
} Run;

static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    const Run *r = user;
    tt_group *world = tt_elastic_group(r->job);
    const tt_elastic_change *change = tt_elastic_changed(r->job);
    if (tt_get_rank(world) == r->die_rank && (!change || !change->round) && tt_trainer_steps(t) == r->die_step)
        raise(SIGKILL);
    return tt_cross_entropy(tt_module_forward(tt_trainer_model(t), b->x), b->y);
}

static tt_status train(Run *r, tt_module *model, tt_optimizer *sgd, tt_dataset *digits) {
    tt_group *world = tt_elastic_group(r->job);
    tt_sampler *sampler = tt_distributed_sampler(EXAMPLES, tt_get_world_size(world), tt_get_rank(world), .seed = 2,
                                                 .virtual_ranks = SHARDS);
    tt_loader *loader = tt_loader_new(digits, BATCH, sampler);
    tt_status status = tt_trainer_run(model, sgd, loader, step, .user = r, .elastic = r->job, .sampler = sampler,
                                      .virtual_ranks = SHARDS, .epochs = EPOCHS, .step_seed = 4);
    tt_loader_free(loader);
    tt_sampler_free(sampler);
    return status;
}

static int run_worker(const char *mode) {
    Run r = {.die_rank = -1};
    sscanf(mode, "%d:%d", &r.die_rank, &r.die_step);
    if (tt_elastic_new(&r.job, .heartbeat_ms = CALM_MS))
        return tt_report(), 1;
    tt_manual_seed(1);
    tt_module *model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 8), tt_nn_batch_norm1d(8), tt_nn_relu(),
                                        tt_nn_dropout(0.2), tt_nn_linear(8, 10));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9);
    tt_dataset *digits = tt_digits(EXAMPLES, 1);
    tt_status status = train(&r, model, sgd, digits);
    if (!status && tt_get_rank(tt_elastic_group(r.job)) == 0)
        status = tt_safetensors_save("trained", tt_module_state_dict(model), NULL, 0);
    if (status)
        tt_report();
    tt_dataset_free(digits);
    tt_optimizer_free(sgd);
    tt_module_free(model);
    tt_elastic_free(r.job);
    return status != TT_OK;
}

/* ---- the tests */

typedef struct Bytes {
    char data[65536];
    size_t size;
} Bytes;

/* Run a job to its end, and read what rank 0 saved. */
static void run_job(job *j, Bytes *trained) {
    unlink("trained");
    if (!job_run(j))
        fail_msg("the job did not end: mode %s, round %d", j->mode, j->round);
    assert_int_equal(j->unknown, 0);
    FILE *f = fopen("trained", "rb");
    assert_non_null(f);
    trained->size = fread(trained->data, 1, sizeof trained->data, f);
    fclose(f);
    assert_in_range(trained->size, 1000, sizeof trained->data - 1);
}

static void expect_same(job *j, const Bytes *expected, const char *what) {
    static Bytes got;
    run_job(j, &got);
    if (got.size != expected->size || memcmp(got.data, expected->data, got.size) != 0)
        fail_msg("%s: other bits than those of one rank", what);
}

static void alone(Bytes *expected) {
    job one = {.mode = "-1:0", .world = 1};
    run_job(&one, expected);
}

static void fewer_ranks_go_on_with_the_same_bits(void **state) {
    (void)state;
    /* rank:step; rank 0, whose buffers count, too; with START - 1 = 3 ranks of 4 shards afterwards */
    static const char *const cases[] = {"0:3", "3:7", "1:9"};
    static Bytes expected;
    alone(&expected);
    job whole = {.mode = "-1:0", .world = START};
    expect_same(&whole, &expected, "undisturbed");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.mode = cases[i], .world = START, .policy = JOB_SHRINKS};
        expect_same(&j, &expected, cases[i]);
        assert_int_equal(j.world, START - 1);
    }
}

static void a_replaced_rank_has_the_same_bits(void **state) {
    (void)state;
    static Bytes expected;
    alone(&expected);
    job j = {.mode = "2:5", .world = START, .policy = JOB_REPLACES};
    setenv("TT_TRANSPORT", "tcp", 1);
    expect_same(&j, &expected, "replaced, tcp");
    unsetenv("TT_TRANSPORT");
    assert_int_equal(j.failures, 1);
}

int main(int argc, char **argv) {
    elastic_job_begin(argc, argv, run_worker);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewer_ranks_go_on_with_the_same_bits),
        cmocka_unit_test(a_replaced_rank_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
