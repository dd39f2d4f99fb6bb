/* DistributedDataParallel: what its header promises beside the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"
#include "support/reducer_trace.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* 6-5-3, other weights on each rank. */
static tt_module *make_model(int rank, int64_t outputs) {
    tt_manual_seed((uint64_t)rank);
    return tt_nn_sequential(tt_nn_linear(6, 5), tt_nn_relu(), tt_nn_linear(5, outputs));
}

/* A backward pass on this rank's own data. */
static tt_status backward(tt_module *module) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(4, 6), NULL), *y = tt_randn(TT_SHAPE(4, 3), NULL);
    return tt_backward(tt_mse_loss(tt_module_forward(module, x), y));
}

/* Every rank has the same bits. */
static void check_equal(tt_group *group, const tt_tensor *x) {
    int world = tt_get_world_size(group);
    size_t n = (size_t)tt_tensor_numel(x);
    float *all = malloc((size_t)world * n * sizeof *all);
    CHECK(all && tt_all_gather(group, tt_tensor_data(x), all, n, TT_F32) == TT_OK);
    for (int r = 0; r < world; r++)
        CHECK(!memcmp(all + (size_t)r * n, tt_tensor_data(x), n * sizeof *all));
    free(all);
}

/* ---- wrapping */

static void wrap(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(rank, 3), *first = make_model(0, 3), *ddp = tt_ddp(model, group);
    CHECK(ddp && tt_ddp_reducer(ddp) && !tt_ddp_reducer(model) && !tt_ddp_reducer(NULL));
    const tt_named_tensors *p = tt_module_parameters(ddp), *expected = tt_module_parameters(first);
    CHECK(p->count == 4 && !strcmp(p->names[0], "0.weight") && !strcmp(tt_module_state_dict(ddp)->names[3], "2.bias"));
    for (int64_t i = 0; i < p->count; i++)
        CHECK(tt_equal(p->tensors[i], expected->tensors[i])); /* rank 0's */
    CHECK(!tt_ddp(ddp, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_ddp(model, NULL) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_ddp(model, group) && tt_last_status() == TT_ERR_STATE && strstr(tt_last_error(), "\"0.weight\" belongs"));
    tt_clear_error();
    CHECK(!tt_ddp(NULL, group) && tt_last_status() == TT_ERR_INVALID && strstr(tt_last_error(), "module is NULL"));
    tt_module *bare = tt_nn_relu();
    CHECK(!tt_ddp(bare, group) && strstr(tt_last_error(), "no parameter that requires a gradient"));
    tt_module_free(bare);
    tt_module_free(first);
    tt_module_free(model); /* either may go first */
    tt_module_free(ddp);
}

static void wrapping_takes_rank_zeros_parameters(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, wrap, NULL), 0);
}

static void wrap_unlike(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(rank, rank == 1 ? 4 : 3), *flat = rank == 1 ? tt_nn_linear(3, 2) : tt_nn_linear(2, 3);
    CHECK(!tt_ddp(model, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK(strstr(tt_last_error(), "rank 1 has parameter 2 \"2.weight\" f32 (4, 5) where rank 0 has parameter 2 "
                                  "\"2.weight\" f32 (3, 5)"));
    CHECK(!tt_ddp(flat, group) && tt_last_status() == TT_ERR_MISMATCH); /* as many elements, another shape */
    CHECK(strstr(tt_last_error(), "f32 (2, 3) where rank 0 has parameter 0 \"weight\" f32 (3, 2)"));
    tt_module_free(flat);
    tt_module_free(model);
}

static void models_that_differ_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, wrap_unlike, NULL), 0);
}

/* ---- training */

static void train(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(rank, 3), *ddp = tt_ddp(model, group);
    const tt_named_tensors *p = tt_module_parameters(ddp);
    tt_optimizer *sgd = tt_sgd(p, 0.1, .momentum = 0.9);
    CHECK(ddp && sgd);
    for (int step = 0; step < 10; step++) {
        tt_optimizer_zero_grad(sgd);
        CHECK(backward(ddp) == TT_OK);
        for (int64_t i = 0; i < p->count; i++)
            check_equal(group, tt_grad(p->tensors[i]));
        CHECK(tt_optimizer_step(sgd) == TT_OK);
        for (int64_t i = 0; i < p->count; i++)
            check_equal(group, p->tensors[i]);
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void parameters_stay_equal(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train, NULL), 0);
    assert_int_equal(run_ranks(3, train, NULL), 0);
}

/* w x with x = 1 has gradient `input`: whatever the loss function adds is left out by sum(w x input). */
static void add_gradient(tt_module *ddp, float input, float expected) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_full(TT_SHAPE(1, 1), TT_F32, (double)input);
    CHECK(tt_backward(tt_sum(tt_module_forward(ddp, x))) == TT_OK);
    CHECK(*tt_tensor_f32(tt_grad(tt_module_parameters(ddp)->tensors[0])) == expected);
}

/* PyTorch's numbers: without zero_grad a pass averages old mean + new gradient. */
static void accumulate(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = tt_nn_linear(1, 1, .no_bias = true), *ddp = tt_ddp(model, group);
    CHECK(ddp);
    add_gradient(ddp, rank == 0 ? 111 : 222, 166.5f);
    add_gradient(ddp, rank == 0 ? 1 : 2, 168);
    tt_zero_grad(tt_module_parameters(model)->tensors[0]);
    add_gradient(ddp, rank == 0 ? 1 : 2, 1.5f);
    tt_module_free(ddp);
    /* unwrapped, the gradient has its value in memory of its own, and is averaged no more */
    CHECK(*tt_tensor_f32(tt_grad(tt_module_parameters(model)->tensors[0])) == 1.5f);
    add_gradient(model, 10, 11.5f);
    ddp = tt_ddp(model, group);
    CHECK(ddp);
    add_gradient(ddp, rank == 0 ? 1 : 2, 13);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void gradients_accumulate_as_pytorchs(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, accumulate, NULL), 0);
}

/* Gradients that come together without an exchange have one at the end. */
static void put_off(tt_group *group, int rank, void *user) {
    (void)user;
    reducer_trace t = {.count = 0};
    tt_module *model = tt_nn_linear(1, 1, .no_bias = true), *ddp = tt_ddp(model, group);
    CHECK(ddp && tt_ddp_set_sync(ddp, false) == TT_OK);
    tt_reducer_set_trace(tt_ddp_reducer(ddp), reducer_trace_note, &t);
    add_gradient(ddp, rank == 0 ? 111 : 222, rank == 0 ? 111 : 222);
    add_gradient(ddp, rank == 0 ? 1 : 2, rank == 0 ? 112 : 224);
    CHECK(t.count == 0);
    CHECK(tt_ddp_set_sync(ddp, true) == TT_OK);
    add_gradient(ddp, rank == 0 ? 2 : 4, 171); /* (114 + 228) / 2 */
    CHECK(t.count == 3);
    CHECK(tt_ddp_set_sync(model, true) == TT_ERR_INVALID && strstr(tt_last_error(), "expected a wrapper"));
    CHECK(tt_ddp_set_sync(NULL, true) == TT_ERR_INVALID);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void gradients_are_averaged_later(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, put_off, NULL), 0);
}

/* Evaluation between steps takes no part in averaging, and only what requires a gradient is averaged. */
static void freeze(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(rank, 3);
    tt_requires_grad_(tt_module_parameters(model)->tensors[0], false);
    tt_module *ddp = tt_ddp(model, group);
    CHECK(ddp && tt_reducer_bucket_count(tt_ddp_reducer(ddp)) == 1);
    for (int step = 0; step < 3; step++) {
        CHECK(backward(ddp) == TT_OK);
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        for (int i = 0; i <= rank; i++)
            CHECK(tt_module_forward(ddp, tt_ones(TT_SHAPE(1, 6), TT_F32)));
    }
    CHECK(!tt_grad(tt_module_parameters(model)->tensors[0]));
    check_equal(group, tt_module_parameters(model)->tensors[0]); /* taken from rank 0 all the same */
    check_equal(group, tt_grad(tt_module_parameters(model)->tensors[1]));
    tt_module_free(ddp);
    tt_module_free(model);
}

static void frozen_parameters_and_evaluation(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, freeze, NULL), 0);
}

/* ---- overlap */

/* With a bucket for each parameter, the last layer's are being reduced while the first one's are not computed yet. */
static void overlap(tt_group *group, int rank, void *user) {
    (void)user;
    reducer_trace t = {.count = 0};
    tt_module *model = make_model(rank, 3), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 1);
    CHECK(ddp && tt_reducer_bucket_count(tt_ddp_reducer(ddp)) == 4);
    tt_reducer_set_trace(tt_ddp_reducer(ddp), reducer_trace_note, &t);
    CHECK(backward(ddp) == TT_OK);
    size_t first_begin = SIZE_MAX, last_ready = 0;
    for (size_t i = 0; i < t.count; i++) {
        if (t.events[i].kind == TT_REDUCER_BEGIN && first_begin == SIZE_MAX)
            first_begin = i;
        if (t.events[i].kind == TT_REDUCER_READY)
            last_ready = i;
    }
    CHECK(t.count == 12 && first_begin < last_ready);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void reductions_overlap_the_backward_pass(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, overlap, NULL), 0);
}

/* ---- failures */

/* A rank with more batches than the others hears that they have ended, in words of this layer. */
static void one_batch_more(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(rank, 3), *ddp = tt_ddp(model, group);
    for (int step = 0; step < 2; step++)
        CHECK(backward(ddp) == TT_OK);
    if (rank == 1) {
        CHECK(backward(ddp) == TT_ERR_PEER);
        CHECK_TEXT(
            "rank 0 left before call 3 of the others: it called tt_module_free() while rank 1 called all_reduce(");
        CHECK_TEXT(", avg) in the averaging of gradients");
    }
    tt_module_free(ddp);
    tt_module_free(model);
}

static void a_batch_too_many_is_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, one_batch_more, NULL), 0);
}

static tt_status refuse(tt_tensor *x, void *user) {
    (void)x;
    return *(bool *)user ? tt_item(NULL, &(double){0}) : TT_OK;
}

/* A step that one rank breaks off can't be made up for: the next one must not be taken for it. */
static void break_off(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(0, 3), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 8);
    bool refusing = false;
    CHECK(!tt_register_post_accumulate_grad_hook(tt_module_parameters(model)->tensors[1], refuse, &refusing));
    CHECK(backward(ddp) == TT_OK);
    refusing = rank == 1;
    tt_status status = backward(ddp);
    CHECK(status == (rank == 1 ? TT_ERR_INVALID : TT_ERR_ABORTED));
    if (rank != 1)
        CHECK_TEXT("rank 1 aborted the group: tt_item");
    refusing = false;
    CHECK(backward(ddp) == TT_ERR_STATE && strstr(tt_last_error(), "an earlier step failed"));
    tt_module_free(ddp);
    CHECK(strstr(tt_last_error(), "an earlier step failed"));
    tt_module_free(model);
}

static void a_step_broken_off_is_the_last(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, break_off, NULL), 0);
}

static void die(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = make_model(rank, 3), *ddp = tt_ddp(model, group);
    CHECK(ddp && backward(ddp) == TT_OK);
    if (rank == 1)
        _exit(0);
    CHECK(backward(ddp) == TT_ERR_PEER && strstr(tt_last_error(), "rank 1"));
    CHECK(backward(ddp) != TT_OK);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void a_dead_rank_ends_training(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, die, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrapping_takes_rank_zeros_parameters),
        cmocka_unit_test(models_that_differ_are_named),
        cmocka_unit_test(parameters_stay_equal),
        cmocka_unit_test(gradients_accumulate_as_pytorchs),
        cmocka_unit_test(gradients_are_averaged_later),
        cmocka_unit_test(frozen_parameters_and_evaluation),
        cmocka_unit_test(reductions_overlap_the_backward_pass),
        cmocka_unit_test(a_batch_too_many_is_named),
        cmocka_unit_test(a_step_broken_off_is_the_last),
        cmocka_unit_test(a_dead_rank_ends_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
