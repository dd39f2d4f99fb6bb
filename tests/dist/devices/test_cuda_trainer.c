/* The trainer on several ranks with a device each: over the back end nccl, which takes nothing of the host's, it tells
 * its ranks the same as over the native engine. On the fakes of CUDA and NCCL. */
#include "support/nccl.h"

#include <math.h>

enum { EXAMPLES = 60, BATCH = 10, EPOCHS = 2, CLASSES = 10, MOST = 2 };

/* What the trainer told rank 0 of each epoch, the evaluation's metrics among it. */
typedef struct told {
    int rank;
    tt_status status;
    int64_t steps;
    int epochs;
    double loss[EPOCHS], waited[EPOCHS];
    tt_trainer_metric eval[EPOCHS][MOST + 1];
    int64_t eval_count[EPOCHS];
    char names[EPOCHS][MOST + 1][16];
} told;

static void note(const tt_trainer_report *report, void *user) {
    told *t = user;
    if (report->event != TT_TRAINER_EPOCH)
        return;
    CHECK(t->epochs < EPOCHS && report->eval_count <= MOST + 1);
    t->loss[t->epochs] = report->loss;
    t->waited[t->epochs] = report->waited;
    t->eval_count[t->epochs] = report->eval_count;
    for (int64_t i = 0; i < report->eval_count; i++) {
        t->eval[t->epochs][i] = report->eval[i];
        snprintf(t->names[t->epochs][i], sizeof t->names[0][0], "%s", report->eval[i].name);
    }
    t->epochs++;
}

/* Ranks have metrics of their own, and names of other lengths. */
static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    told *own = user;
    const tt_device *gpu = TT_CUDA(own->rank);
    own->steps++;
    CHECK_OK(tt_trainer_add_metric(t, own->rank ? "longer name" : "name", own->rank + 1, b->size));
    return tt_cross_entropy(tt_module_forward(tt_trainer_model(t), tt_to_device(b->x, gpu)), tt_to_device(b->y, gpu));
}

static void train(tt_group *group, int rank, int world, tt_trainer_step_fn run, told *told) {
    tt_manual_seed(1);
    memset(told, 0, sizeof *told);
    told->rank = rank;
    tt_dataset *digits = tt_digits(EXAMPLES, 0);
    tt_sampler *sampler = tt_distributed_sampler(EXAMPLES, world, rank),
               *all = tt_distributed_sampler(EXAMPLES, world, rank, .exact = true, .no_shuffle = true);
    tt_loader *loader = tt_loader_new(digits, BATCH, sampler), *test = tt_loader_new(digits, BATCH, all);
    tt_module *net = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 8), tt_nn_relu(), tt_nn_linear(8, CLASSES));
    CHECK(loader && test && net);
    CHECK_OK(tt_module_to_device(net, TT_CUDA(rank)));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(net), 0.1);
    CHECK(sgd);
    told->status =
        tt_trainer_run(net, sgd, loader, run, .user = told, .group = group, .sampler = sampler, .epochs = EPOCHS,
                       .eval_loader = test, .clip_norm = 1, .display = note, .display_user = told);
    tt_optimizer_free(sgd);
    tt_module_free(net);
    tt_loader_free(test);
    tt_loader_free(loader);
    tt_sampler_free(all);
    tt_sampler_free(sampler);
    tt_dataset_free(digits);
}

/* ---- what is told ---- */

static void check_same_told(const told *near, const told *far) {
    CHECK(near->epochs == EPOCHS && far->epochs == EPOCHS);
    for (int e = 0; e < EPOCHS; e++) {
        CHECK(fabs(near->loss[e] - far->loss[e]) < 1e-5 && far->waited[e] >= 0 && far->waited[e] <= 1);
        CHECK(near->eval_count[e] == MOST + 1 && far->eval_count[e] == MOST + 1);
        for (int i = 0; i < MOST + 1; i++) {
            CHECK(!strcmp(near->names[e][i], far->names[e][i]));
            CHECK(fabs(near->eval[e][i].value - far->eval[e][i].value) < 1e-5);
        }
    }
}

static int tells_the_same(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static told near, far;
    both_engines both = both_join(store, rank, world);
    train(both.native, rank, world, step, &near);
    CHECK_OK(near.status);
    train(both.nccl, rank, world, step, &far);
    CHECK_OK(far.status);
    if (rank == 0)
        check_same_told(&near, &far);
    both_leave(&both);
    return 0;
}

static void ranks_are_told_the_same_as_over_the_native_engine(void **state) {
    (void)state;
    with_ranks(2, tells_the_same, NULL);
    with_ranks(3, tells_the_same, NULL);
}

/* ---- errors ---- */

/* Rank 1's third loss is infinite. */
static tt_tensor *step_to_infinity(tt_trainer *t, const tt_batch *b, void *user) {
    const told *own = user;
    tt_tensor *loss = step(t, b, user);
    return own->rank && own->steps == 3 ? tt_scale(loss, INFINITY) : loss;
}

static int refuses_a_loss(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    told told;
    tt_group *group = nccl_join(store, rank, world);
    train(group, rank, world, step_to_infinity, &told);
    CHECK(told.status == TT_ERR_NAN);
    CHECK(strstr(tt_last_error(), "the loss of step 3 (epoch 1) on rank 1 is inf"));
    tt_destroy_process_group(group);
    return 0;
}

static void a_bad_loss_ends_all_ranks(void **state) {
    (void)state;
    with_ranks(2, refuses_a_loss, NULL);
}

/* Options that ranks don't share are named before the first step. */
static int refuses_options(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = nccl_join(store, rank, world);
    tt_dataset *digits = tt_digits(EXAMPLES, 0);
    tt_sampler *sampler = tt_in_order();
    tt_loader *loader = tt_loader_new(digits, BATCH, sampler);
    tt_module *net = tt_nn_linear(1, 1);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(net), 0.1);
    CHECK(loader && sgd);
    CHECK(tt_trainer_run(net, sgd, loader, step, .group = group, .epochs = 1 + rank) == TT_ERR_MISMATCH);
    CHECK(strstr(tt_last_error(), "but .epochs: 1 to 2"));
    tt_optimizer_free(sgd);
    tt_module_free(net);
    tt_loader_free(loader);
    tt_sampler_free(sampler);
    tt_dataset_free(digits);
    tt_destroy_process_group(group);
    return 0;
}

static void options_that_differ_are_named(void **state) {
    (void)state;
    with_ranks(2, refuses_options, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_are_told_the_same_as_over_the_native_engine),
                                       cmocka_unit_test(a_bad_loss_ends_all_ranks),
                                       cmocka_unit_test(options_that_differ_are_named)};
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
