/* DistributedDataParallel around modules of every kind: buffers, several tensors, other layouts, tied and converted
 * weights, and which of the two is freed first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

/* (a, b) -> (a w, b w), with a buffer that counts calls in training. */
typedef struct Pair {
    tt_tensor *weight, *calls;
} Pair;

static tt_status pair_forward(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                              int64_t out_count) {
    const Pair *p = tt_module_user(self);
    CHECK(in_count == 2 && out_count == 2);
    if (tt_module_training(self))
        *tt_tensor_i64(p->calls) += 1;
    for (int i = 0; i < 2; i++)
        out[i] = tt_matmul(in[i], p->weight);
    return TT_OK;
}

static const tt_module_class pair_class =
    TT_MODULE_CLASS(.name = "Pair", .forward_many = pair_forward, .inputs = 2, .outputs = 2);

/* The weight is a transposed view, other values on each rank. */
static tt_module *pair_new(Pair *p, int rank) {
    tt_module *m = tt_module_new(&pair_class, p);
    tt_tensor *base = tt_full(TT_SHAPE(3, 2), TT_F32, rank + 1), *weight = tt_transpose(base, 0, 1);
    CHECK(tt_module_register_parameter(m, "weight", weight) == TT_OK);
    CHECK(tt_module_register_buffer(m, "calls", tt_full(TT_SHAPE(1), TT_I64, 10 * rank)) == TT_OK);
    tt_tensor_free(base);
    p->weight = tt_module_parameters(m)->tensors[0];
    p->calls = tt_module_buffers(m)->tensors[0];
    CHECK(!tt_is_contiguous(p->weight));
    return m;
}

static void pass(tt_module *m, int rank) {
    TT_AUTO_SCOPE;
    tt_tensor *out[2], *x = tt_full(TT_SHAPE(1, 2), TT_F32, rank + 1);
    CHECK(tt_module_forward_many(m, TT_TENSORS(x, x), out, 2) == TT_OK);
    CHECK(tt_backward(tt_sum(tt_add(out[0], out[1]))) == TT_OK);
}

static void evaluate(tt_module *m) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *out[2], *x = tt_ones(TT_SHAPE(1, 2), TT_F32);
    CHECK(tt_module_forward_many(m, TT_TENSORS(x, x), out, 2) == TT_OK);
}

/* Passes that are averaged together take rank 0's buffers once, as PyTorch's do. */
static void pass_apart(tt_module *ddp, const Pair *p, int rank) {
    CHECK(tt_ddp_set_sync(ddp, false) == TT_OK);
    *tt_tensor_i64(p->calls) += 100 * rank;
    pass(ddp, rank);
    CHECK(*tt_tensor_i64(p->calls) == 3);
    *tt_tensor_i64(p->calls) += 100 * rank;
    pass(ddp, rank);
    CHECK(tt_ddp_set_sync(ddp, true) == TT_OK);
    pass(ddp, rank);
    CHECK(*tt_tensor_i64(p->calls) == 5 + 100 * rank);
    pass(ddp, rank);
    CHECK(*tt_tensor_i64(p->calls) == 6);
}

static void train_pair(tt_group *group, int rank, void *user) {
    (void)user;
    Pair p;
    tt_module *m = pair_new(&p, rank), *ddp = tt_ddp(m, group);
    CHECK(ddp);
    CHECK(*tt_tensor_i64(p.calls) == 0 && *(float *)tt_tensor_data(p.weight) == 1); /* rank 0's */
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 1);
    pass(ddp, rank);
    CHECK(tt_tensor_f32(tt_grad(p.weight))[5] == 3); /* the mean of 2 and 4 */
    CHECK(tt_optimizer_step(sgd) == TT_OK && *(float *)tt_tensor_data(p.weight) == -2);
    *tt_tensor_i64(p.calls) += 100 * rank;
    tt_module_eval(ddp);
    for (int i = 0; i <= rank; i++) /* evaluation takes no part, however often each rank does it */
        evaluate(ddp);
    CHECK(*tt_tensor_i64(p.calls) == 1 + 100 * rank);
    tt_module_train(ddp);
    pass(ddp, rank);
    CHECK(*tt_tensor_i64(p.calls) == 2); /* rank 0's 1, and this call */
    pass_apart(ddp, &p, rank);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    ddp = tt_ddp(m, group, .no_broadcast_buffers = true);
    *tt_tensor_i64(p.calls) += 100 * rank;
    pass(ddp, rank);
    CHECK(*tt_tensor_i64(p.calls) == 7 + 100 * rank);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void buffers_and_several_tensors(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train_pair, NULL), 0);
}

static void buffers_differ(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = tt_nn_linear(2, 2);
    CHECK(tt_module_register_buffer(m, "mean", tt_zeros(TT_SHAPE(rank + 1), TT_F32)) == TT_OK);
    CHECK(!tt_ddp(m, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK(strstr(tt_last_error(), "rank 1 has buffer 0 \"mean\" f32 (2) where rank 0 has buffer 0 \"mean\" f32 (1)"));
    tt_module_free(m);
}

static void buffers_that_differ_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, buffers_differ, NULL), 0);
}

static tt_status backward(tt_module *m) {
    TT_AUTO_SCOPE;
    return tt_backward(tt_mean(tt_module_forward(m, tt_ones(TT_SHAPE(4, 6), TT_F32))));
}

/* The wrapper keeps the module: training goes on after tt_module_free() of it. */
static void free_in_order(tt_group *group, int rank, void *user) {
    bool module_first = *(bool *)user;
    tt_manual_seed((uint64_t)rank);
    tt_module *m = tt_nn_sequential(tt_nn_linear(6, 5), tt_nn_relu(), tt_nn_linear(5, 3)), *ddp = tt_ddp(m, group);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(m), 0.1);
    CHECK(ddp && sgd && backward(ddp) == TT_OK);
    tt_module_free(module_first ? m : ddp);
    tt_optimizer_zero_grad(sgd);
    CHECK(backward(module_first ? ddp : m) == TT_OK && tt_optimizer_step(sgd) == TT_OK);
    CHECK(tt_module_parameters(module_first ? ddp : m)->count == 4);
    tt_optimizer_free(sgd);
    tt_module_free(module_first ? ddp : m);
}

static void either_may_be_freed_first(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++)
        assert_int_equal(run_ranks(2, free_in_order, &(bool){first}), 0);
}

static void tied(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = tt_nn_sequential(tt_nn_linear(6, 6, .no_bias = true), tt_nn_relu());
    CHECK(tt_module_register_parameter(tt_module_child(m, "1"), "weight", tt_module_parameters(m)->tensors[0]) ==
          TT_OK);
    CHECK(rank == 0 || tt_module_to(m, TT_F64) == TT_OK);
    CHECK(!tt_ddp(m, group) && tt_last_status() == TT_ERR_MISMATCH && strstr(tt_last_error(), "f64 (6, 6)"));
    CHECK(tt_module_to(m, TT_F32) == TT_OK);
    tt_module *ddp = tt_ddp(m, group);
    CHECK(ddp && tt_module_parameters(ddp)->count == 1 && tt_module_state_dict(ddp)->count == 2);
    CHECK(backward(ddp) == TT_OK);
    CHECK(tt_module_to(ddp, TT_F64) == TT_ERR_STATE && strstr(tt_last_error(), "DistributedDataParallel wraps"));
    tt_module_free(ddp);
    tt_module_free(m);
}

static void tied_and_converted_weights(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, tied, NULL), 0);
}

/* Embedding, recurrences, attention; the same weights on each rank. */
static tt_module *sequence_model(void) {
    tt_manual_seed(1);
    return tt_nn_sequential(
        tt_nn_embedding(7, 8), tt_nn_lstm(8, 4, .num_layers = 2, .bidirectional = true, .batch_first = true),
        tt_nn_gru(8, 8, .batch_first = true),
        tt_nn_transformer_encoder(tt_nn_transformer_encoder_layer(8, 2, 16, 0.0, .batch_first = true), 2, .norm = true),
        tt_nn_linear(8, 1));
}

static tt_status sequence_backward(tt_module *m, tt_tensor *tokens) {
    tt_tensor *y = tt_module_forward(m, tokens);
    return tt_backward(tt_mean(tt_mul(y, y)));
}

/* Each rank takes one of two sequences: the gradients are those of both at once in one process. */
static void train_on_sequences(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    const int64_t all[2][5] = {{1, 5, 2, 0, 6}, {3, 3, 4, 1, 0}};
    tt_module *m = sequence_model(), *whole = sequence_model(), *ddp = tt_ddp(m, group);
    CHECK(ddp && whole);
    CHECK(sequence_backward(ddp, tt_from_data(all[rank], TT_SHAPE(1, 5), TT_I64)) == TT_OK);
    CHECK(sequence_backward(whole, tt_from_data(all, TT_SHAPE(2, 5), TT_I64)) == TT_OK);
    const tt_named_tensors *ours = tt_module_parameters(m), *expected = tt_module_parameters(whole);
    CHECK(ours->count > 30);
    for (int64_t i = 0; i < ours->count; i++) {
        double worst = 1;
        tt_tensor *differences = tt_abs(tt_sub(tt_grad(ours->tensors[i]), tt_grad(expected->tensors[i])));
        CHECK(tt_item(tt_max(differences), &worst) == TT_OK && worst < 1e-6);
    }
    tt_module_free(ddp);
    tt_module_free(whole);
    tt_module_free(m);
}

static void recurrences_and_attention_train(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train_on_sequences, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrences_and_attention_train), cmocka_unit_test(buffers_and_several_tensors),
        cmocka_unit_test(buffers_that_differ_are_named),   cmocka_unit_test(either_may_be_freed_first),
        cmocka_unit_test(tied_and_converted_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
