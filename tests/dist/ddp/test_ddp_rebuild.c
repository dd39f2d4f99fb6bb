/* Buckets are formed anew in the order in which rank 0's gradients became ready: averages keep their bits. */
#include <string.h>
#include <tutti/tutti.h>

#include "support/ranks.h"

enum { LAYERS = 5, WIDTH = 8, PARAMS = 2 * LAYERS, NUMEL = WIDTH * WIDTH, STEPS = 4 };

static int order[LAYERS]; /* in which the next forward runs the layers */

static tt_tensor *in_order(tt_module *self, tt_tensor *x) {
    char name[16];
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "layer%d", order[i]);
        x = tt_tanh(tt_module_forward(tt_module_child(self, name), x));
    }
    return x;
}

static tt_module *make_layers(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Layers", .forward = in_order);
    tt_manual_seed(11);
    tt_module *m = tt_module_new(&cls, NULL);
    char name[16];
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        CHECK_OK(tt_module_add_module(m, name, tt_nn_linear(WIDTH, WIDTH)));
    }
    return m;
}

/* Rank 0 runs the layers from the last to the first, rank 1 from the first to the last; later steps differ again. */
static void choose_order(int rank, int step) {
    for (int i = 0; i < LAYERS; i++)
        order[i] = rank == 0 ? LAYERS - 1 - i : (i + step) % LAYERS;
}

static void add_gradients(tt_module *m, int rank, int step) {
    TT_AUTO_SCOPE;
    choose_order(rank, step);
    tt_manual_seed((uint64_t)(100 * step + rank));
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(m, tt_randn(TT_SHAPE(3, WIDTH), NULL)))));
}

static void check_step(tt_module *ddp, int step) {
    tt_module *alone[2];
    for (int rank = 0; rank < 2; rank++)
        add_gradients(alone[rank] = make_layers(), rank, step);
    for (int i = 0; i < PARAMS; i++) {
        const tt_tensor *grads[3];
        tt_module *of[] = {ddp, alone[0], alone[1]};
        for (int k = 0; k < 3; k++)
            grads[k] = tt_grad(tt_module_parameters(of[k])->tensors[i]);
        for (int64_t k = 0; k < tt_tensor_numel(grads[0]); k++)
            CHECK(tt_tensor_f32(grads[0])[k] == tt_tensor_f32(grads[1])[k] * 0.5F + tt_tensor_f32(grads[2])[k] * 0.5F);
    }
    tt_module_free(alone[0]);
    tt_module_free(alone[1]);
}

static void rebuild(tt_group *group, int rank, void *user) {
    bool one_bucket = *(bool *)user;
    tt_module *m = make_layers(), *ddp = tt_ddp(m, group, .bucket_cap_bytes = one_bucket ? 0 : 1);
    const tt_reducer *r = tt_ddp_reducer(ddp);
    CHECK(ddp);
    for (int i = 0; i < PARAMS; i++)
        CHECK(tt_reducer_bucket_of(r, i) == (one_bucket ? 0 : PARAMS - 1 - i));
    const void *before = tt_reducer_gradient(tt_ddp_reducer(ddp), 0);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < PARAMS; i++)
            tt_zero_grad(tt_module_parameters(m)->tensors[i]);
        add_gradients(ddp, rank, step);
        check_step(ddp, step); /* the first step's averages moved with their buckets */
        /* layer0 runs last on rank 0, so its bias is ready first */
        for (int i = 0; i < PARAMS; i++)
            CHECK(tt_reducer_bucket_of(r, i) == (one_bucket ? 0 : i % 2 ? i - 1 : i + 1));
    }
    tt_ddp_logging_data log;
    CHECK_OK(tt_ddp_get_logging_data(ddp, &log));
    CHECK(log.steps == STEPS && log.parameters == PARAMS && log.unused == 0);
    CHECK(log.buckets == (one_bucket ? 1 : PARAMS) && log.gradient_bytes == LAYERS * (NUMEL + 16) * 4);
    CHECK(log.forward_ns > 0 && log.backward_ns > 0 && log.averaging_ns > 0 && log.overlap_ns <= log.averaging_ns);
    CHECK(tt_ddp_get_logging_data(m, &log) == TT_ERR_INVALID && tt_ddp_get_logging_data(ddp, NULL) == TT_ERR_INVALID);
    CHECK(!one_bucket || tt_reducer_gradient(tt_ddp_reducer(ddp), 0) == before); /* nothing to gain, nothing done */
    for (int i = 0; i < PARAMS; i++) {
        tt_tensor *x = tt_module_parameters(m)->tensors[i];
        CHECK(tt_tensor_data(tt_grad(x)) == tt_reducer_gradient(tt_ddp_reducer(ddp), i));
    }
    tt_module_free(ddp);
    tt_module_free(m);
}

static void buckets_follow_the_first_step(void **state) {
    (void)state;
    bool one_bucket[] = {false, true};
    assert_int_equal(run_ranks(2, rebuild, &one_bucket[0]), 0);
    assert_int_equal(run_ranks(2, rebuild, &one_bucket[1]), 0);
}

/* A rank that ends when the others tell each other the order. */
static void die_before_order(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = make_layers(), *ddp = tt_ddp(m, group, .bucket_cap_bytes = 1);
    CHECK(ddp);
    TT_AUTO_SCOPE;
    choose_order(0, 0);
    tt_tensor *y = tt_sum(tt_module_forward(ddp, tt_randn(TT_SHAPE(3, WIDTH), NULL)));
    if (rank == 1)
        _exit(0);
    CHECK(tt_backward(y) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    tt_module_free(ddp);
    tt_module_free(m);
}

static void a_rank_that_dies_in_the_first_step_is_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, die_before_order, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_follow_the_first_step),
        cmocka_unit_test(a_rank_that_dies_in_the_first_step_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
