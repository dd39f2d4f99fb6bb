/* DistributedDataParallel in mixed precision: it learns as in f32, ranks keep the same bits, and scalers of all ranks
 * skip the same steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

typedef enum Way { PLAIN, AUTOCAST, LEVEL_2, LEVEL_2_F16 } Way;

typedef struct Trainer {
    tt_module *net, *ddp;
    tt_optimizer *adam;
    tt_grad_scaler *scaler;
    Way way;
} Trainer;

static Trainer trainer_make(tt_group *group, int rank, Way way) {
    Trainer t = {.way = way};
    tt_manual_seed((uint64_t)rank); /* wrapping takes rank 0's */
    t.net = tt_nn_sequential(tt_nn_linear(6, 24), tt_nn_gelu(), tt_nn_linear(24, 3));
    t.adam = tt_adam(tt_module_parameters(t.net), 0.01);
    tt_dtype dtype = way == LEVEL_2_F16 ? TT_F16 : TT_BF16;
    CHECK(tt_amp_initialize(t.net, t.adam, .opt_level = way >= LEVEL_2 ? TT_O2 : TT_O0, .dtype = dtype,
                            .scaler = &t.scaler) == TT_OK);
    t.ddp = tt_ddp(t.net, group);
    CHECK(t.ddp);
    return t;
}

static void trainer_free(Trainer *t) {
    tt_module_free(t->ddp);
    tt_optimizer_free(t->adam);
    tt_grad_scaler_free(t->scaler);
    tt_module_free(t->net);
}

/* One step on this rank's examples: which of the first three inputs is the largest. Returns the loss. `spoil`: this
 * rank's gradients become infinite. */
static double trainer_step(Trainer *t, uint64_t seed, bool spoil) {
    TT_AUTO_SCOPE;
    tt_generator *g = tt_generator_new(seed);
    tt_tensor *x = tt_randn(TT_SHAPE(16, 6), g), *target = tt_argmax(tt_narrow(x, 1, 0, 3), 1);
    tt_generator_free(g);
    int before = tt_autocast_begin(TT_BF16, .disabled = t->way != AUTOCAST);
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(t->ddp, x), target);
    tt_autocast_end(before);
    double value = NAN;
    CHECK(tt_item(loss, &value) == TT_OK);
    tt_optimizer_zero_grad(t->adam);
    CHECK(tt_backward(tt_grad_scaler_scale(t->scaler, spoil ? tt_scale(loss, INFINITY) : loss)) == TT_OK);
    CHECK(tt_grad_scaler_step(t->scaler, t->adam) == TT_OK && tt_grad_scaler_update(t->scaler) == TT_OK);
    return value;
}

/* All ranks have the bits of rank 0. */
static void same_bits(tt_group *group, const tt_named_tensors *list) {
    for (int64_t i = 0; i < list->count; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *mine = tt_clone(tt_detach(list->tensors[i])), *first = tt_clone(mine);
        CHECK(tt_tensor_broadcast(group, first, 0) == TT_OK);
        CHECK(tt_equal(mine, first));
    }
}

static double train(tt_group *group, int rank, Way way) {
    Trainer t = trainer_make(group, rank, way);
    double sum = 0;
    for (uint64_t i = 0; i < 150; i++) {
        double loss = trainer_step(&t, 2 * i + (uint64_t)rank, false);
        sum += i < 130 ? 0 : loss / 20;
    }
    same_bits(group, tt_module_parameters(t.net));
    same_bits(group, tt_optimizer_master_params(t.adam));
    trainer_free(&t);
    return sum;
}

static void learn(tt_group *group, int rank, void *user) {
    (void)user;
    double f32 = train(group, rank, PLAIN);
    CHECK(f32 < 0.5);
    for (Way way = AUTOCAST; way <= LEVEL_2_F16; way++)
        CHECK(fabs(train(group, rank, way) - f32) < 0.03);
}

static void every_way_learns_as_f32_does(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, learn, NULL), 0);
}

static void skip_together(tt_group *group, int rank, void *user) {
    (void)user;
    Trainer t = trainer_make(group, rank, LEVEL_2_F16);
    double before = tt_grad_scaler_get_scale(t.scaler);
    trainer_step(&t, (uint64_t)rank, rank == 1);
    CHECK(tt_grad_scaler_get_scale(t.scaler) == before / 2); /* on rank 0, too */
    same_bits(group, tt_module_parameters(t.net));
    trainer_step(&t, (uint64_t)rank, false);
    CHECK(tt_grad_scaler_get_scale(t.scaler) == before / 2);
    same_bits(group, tt_optimizer_master_params(t.adam));
    trainer_free(&t);
}

static void scalers_skip_together(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, skip_together, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_learns_as_f32_does),
        cmocka_unit_test(scalers_skip_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
