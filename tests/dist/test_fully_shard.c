/* Modules whose parameters are spread over the ranks beside tt_ddp(), in the same processes: the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/zero_models.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int worlds[] = {1, 2, 3, 4};

/* ---- models, and a pass of each */

typedef struct model_kind {
    const char *name;
    tt_module *(*make)(void);
    tt_tensor *(*loss)(tt_module *m); /* on data drawn from the default generator */
    int64_t units;                    /* found without .units */
} model_kind;

static tt_module *make_mlp(void) {
    return tt_nn_sequential(tt_nn_linear(13, 37), tt_nn_relu(), tt_nn_linear(37, 37), tt_nn_tanh(),
                            tt_nn_linear(37, 29), tt_nn_relu(), tt_nn_linear(29, 5));
}

static tt_tensor *mlp_loss(tt_module *m) {
    tt_tensor *x = tt_randn(TT_SHAPE(6, 13), NULL), *y = tt_randn(TT_SHAPE(6, 5), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

static tt_module *make_conv(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3), tt_nn_batch_norm2d(4), tt_nn_relu(), tt_nn_conv2d(4, 6, 3),
                            tt_nn_batch_norm2d(6), tt_nn_relu(), tt_nn_flatten(), tt_nn_linear(6 * 16, 7));
}

static tt_tensor *conv_loss(tt_module *m) {
    tt_tensor *x = tt_randn(TT_SHAPE(4, 1, 8, 8), NULL), *y = tt_randn(TT_SHAPE(4, 7), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

enum { GPT_VOCAB = 11, GPT_LENGTH = 8 };

static tt_module *make_gpt(void) { return tt_model_gpt(GPT_VOCAB, GPT_LENGTH, 16, 3, 2); }

static tt_tensor *gpt_loss(tt_module *m) {
    tt_tensor *ids = tt_randint(0, GPT_VOCAB, TT_SHAPE(2, GPT_LENGTH + 1), NULL);
    tt_tensor *x = tt_contiguous(tt_narrow(ids, 1, 0, GPT_LENGTH)), *y = tt_narrow(ids, 1, 1, GPT_LENGTH);
    tt_tensor *logits = tt_module_forward(m, x);
    return tt_cross_entropy(tt_reshape(logits, TT_SHAPE(2 * GPT_LENGTH, GPT_VOCAB)),
                            tt_reshape(tt_contiguous(y), TT_SHAPE(2 * GPT_LENGTH)));
}

static tt_module *make_branches(void) { return zero_branches(); }

static tt_tensor *branches_loss(tt_module *m) {
    tt_tensor *x = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_IN), NULL), *y = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_OUT), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

static const model_kind mlp = {"mlp", make_mlp, mlp_loss, 4}, conv = {"conv", make_conv, conv_loss, 5},
                        gpt = {"gpt", make_gpt, gpt_loss, 3}, branches = {"branches", make_branches, branches_loss, 0};

/* ---- both together */

typedef struct shard_case {
    const model_kind *kind;
    tt_zero_make_fn make;
    bool keep;
    int passes; /* a step */
    bool vary;  /* ranks use other parameters of one unit */
} shard_case;

static zero_side shard_side(tt_group *group, const shard_case *c, bool sharded) {
    tt_manual_seed(3);
    zero_side s = {.model = c->kind->make()};
    s.ddp = sharded ? tt_fully_shard(s.model, group, .keep_after_forward = c->keep) : tt_ddp(s.model, group);
    CHECK(s.ddp);
    s.optimizer = sharded ? tt_zero_optimizer(s.ddp, c->make, NULL) : c->make(tt_module_parameters(s.ddp), NULL);
    CHECK(s.optimizer);
    return s;
}

static double shard_pass(const shard_case *c, tt_module *m, uint64_t data) {
    TT_AUTO_SCOPE;
    tt_manual_seed(data);
    tt_tensor *loss = c->kind->loss(m);
    double value = 0;
    CHECK_OK(tt_item(loss, &value));
    CHECK_OK(tt_backward(loss));
    return value;
}

static void expect_same_wholes(zero_side *plain, zero_side *sharded) {
    CHECK_OK(tt_fully_shard_gather(sharded->ddp, TT_ALL_RANKS));
    zero_expect_same(tt_module_state_dict(plain->model), tt_module_state_dict(sharded->model));
    CHECK_OK(tt_fully_shard_scatter(sharded->ddp));
}

static void step_both(const shard_case *c, zero_side *a, zero_side *b, int step, int rank) {
    tt_optimizer_zero_grad(a->optimizer);
    tt_optimizer_zero_grad(b->optimizer);
    for (int i = 0; i < c->passes; i++) {
        const int pass = step * c->passes + i;
        zero_heads = c->vary ? (unsigned)(pass * 7 + rank * 3 + pass / 4) % 4 : ZERO_LEFT | ZERO_RIGHT;
        double plain = shard_pass(c, a->ddp, (uint64_t)(pass * 8 + rank));
        CHECK(plain == shard_pass(c, b->ddp, (uint64_t)(pass * 8 + rank)));
    }
    CHECK_OK(tt_optimizer_step(a->optimizer));
    CHECK_OK(tt_optimizer_step(b->optimizer));
}

static const shard_case shard_cases[] = {
    {&mlp, zero_make_sgd, false, 1, false},     {&mlp, zero_make_adam, true, 1, false},
    {&conv, zero_make_adamw, false, 1, false},  {&gpt, zero_make_adamw, false, 1, false},
    {&branches, zero_make_sgd, false, 1, true}, {&branches, zero_make_groups, false, 1, false},
};

static void compare_sharded(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t i = 0; i < COUNT(shard_cases); i++) {
        const shard_case *c = &shard_cases[i];
        zero_side a = shard_side(group, c, false), b = shard_side(group, c, true);
        CHECK(tt_fully_shard_unit_count(b.ddp) == c->kind->units);
        for (int step = 0; step < 6; step++) {
            step_both(c, &a, &b, step, rank);
            if (step % 3 == 2)
                expect_same_wholes(&a, &b);
        }
        CHECK_OK(tt_zero_consolidate(b.optimizer, TT_ALL_RANKS));
        zero_expect_same(tt_optimizer_state_dict(a.optimizer), tt_optimizer_state_dict(b.optimizer));
        zero_end_side(&a);
        zero_end_side(&b);
    }
}

static void parameters_have_ddps_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(worlds); i++)
        if (world_is_tried(worlds[i]))
            assert_int_equal(run_ranks(worlds[i], compare_sharded, NULL), 0);
}

static void so_they_have_without_shared_memory(void **state) {
    (void)state;
    setenv("TT_TRANSPORT", "tcp", 1);
    int bad = run_ranks(3, compare_sharded, NULL);
    unsetenv("TT_TRANSPORT");
    assert_int_equal(bad, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_have_ddps_bits),
    cmocka_unit_test(so_they_have_without_shared_memory),
};

int main(void) { return cmocka_run_group_tests(tests, NULL, NULL); }
