/* Layers whose weights are divided among ranks: forward, gradients and training are those of the plain layers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { BATCH = 6, IN = 12, HIDDEN = 24, OUT = 12, STEPS = 20, WORDS = 24 };

static tt_tensor *drawn(uint64_t seed, tt_shape shape) {
    tt_generator *g = tt_generator_new(seed);
    tt_tensor *x = tt_randn(shape, g);
    tt_generator_free(g);
    return x;
}

static double difference(const tt_tensor *a, const tt_tensor *b) {
    tt_tensor *x = tt_contiguous((tt_tensor *)(uintptr_t)a), *y = tt_contiguous((tt_tensor *)(uintptr_t)b);
    double worst = 0;
    CHECK(x && y && tt_tensor_numel(x) == tt_tensor_numel(y));
    for (int64_t i = 0; i < tt_tensor_numel(x); i++) {
        double apart = fabs((double)tt_tensor_f32(x)[i] - tt_tensor_f32(y)[i]);
        if (isnan(apart))
            return apart; /* less than nothing */
        worst = fmax(worst, apart);
    }
    return worst;
}

static bool has_nan(const tt_tensor *x) {
    bool some = false;
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        some |= isnan(tt_tensor_f32(x)[i]);
    return some;
}

/* This rank's part of x along `dim`. */
static tt_tensor *part(tt_tensor *x, int dim, tt_group *group) {
    int64_t own = tt_tensor_size(x, dim) / tt_get_world_size(group);
    return tt_narrow(x, dim, own * tt_get_rank(group), own);
}

static tt_tensor *parameter(tt_module *m, const char *name) {
    return tt_named_tensors_find(tt_module_parameters(m), name);
}

/* ---- one layer ---- */

static void backward_of(tt_tensor *y, tt_tensor *g) { CHECK_OK(tt_backward(y, .gradient = g)); }

static void column_layer(tt_group *group, bool gathers) {
    TT_AUTO_SCOPE;
    tt_manual_seed(5);
    tt_module *plain = tt_nn_linear(IN, HIDDEN);
    tt_manual_seed(5);
    tt_module *column = tt_nn_column_parallel_linear(IN, HIDDEN, group, .gather_output = gathers);
    CHECK(plain && column);
    CHECK(tt_equal(parameter(column, "weight"), tt_contiguous(part(parameter(plain, "weight"), 0, group))));
    CHECK(tt_equal(parameter(column, "bias"), tt_contiguous(part(parameter(plain, "bias"), 0, group))));
    tt_tensor *x = tt_requires_grad_(drawn(1, TT_SHAPE(2, BATCH, IN)), true);
    tt_tensor *z = tt_requires_grad_(drawn(1, TT_SHAPE(2, BATCH, IN)), true);
    tt_tensor *y = tt_module_forward(plain, x), *q = tt_module_forward(column, z), *g = drawn(2, tt_tensor_shape(y));
    CHECK(difference(q, gathers ? y : part(y, 2, group)) < 1e-6);
    backward_of(y, g);
    backward_of(q, gathers ? g : tt_contiguous(part(g, 2, group)));
    CHECK(difference(tt_grad(z), tt_grad(x)) < 1e-5);
    CHECK(difference(tt_grad(parameter(column, "weight")), part(tt_grad(parameter(plain, "weight")), 0, group)) < 1e-5);
    CHECK(difference(tt_grad(parameter(column, "bias")), part(tt_grad(parameter(plain, "bias")), 0, group)) < 1e-5);
    tt_module_free(plain), tt_module_free(column);
}

static void row_layer(tt_group *group, bool scatters) {
    TT_AUTO_SCOPE;
    tt_manual_seed(5);
    tt_module *plain = tt_nn_linear(HIDDEN, OUT);
    tt_manual_seed(5);
    tt_module *row = tt_nn_row_parallel_linear(HIDDEN, OUT, group, .scatter_input = scatters);
    CHECK(plain && row);
    CHECK(tt_equal(parameter(row, "weight"), tt_contiguous(part(parameter(plain, "weight"), 1, group))));
    CHECK(tt_equal(parameter(row, "bias"), parameter(plain, "bias")));
    tt_tensor *x = tt_requires_grad_(drawn(1, TT_SHAPE(BATCH, HIDDEN)), true);
    tt_tensor *mine = drawn(1, TT_SHAPE(BATCH, HIDDEN));
    tt_tensor *z = tt_requires_grad_(scatters ? mine : tt_contiguous(part(mine, 1, group)), true);
    tt_tensor *y = tt_module_forward(plain, x), *q = tt_module_forward(row, z), *g = drawn(2, tt_tensor_shape(y));
    CHECK(difference(q, y) < 1e-5);
    backward_of(y, g);
    backward_of(q, g);
    CHECK(difference(tt_grad(z), scatters ? tt_grad(x) : part(tt_grad(x), 1, group)) < 1e-5);
    CHECK(difference(tt_grad(parameter(row, "weight")), part(tt_grad(parameter(plain, "weight")), 1, group)) < 1e-5);
    CHECK(difference(tt_grad(parameter(row, "bias")), tt_grad(parameter(plain, "bias"))) < 1e-6);
    tt_module_free(plain), tt_module_free(row);
}

static void embedding_layer(tt_group *group) {
    TT_AUTO_SCOPE;
    tt_manual_seed(5);
    tt_module *plain = tt_nn_embedding(WORDS, OUT);
    tt_manual_seed(5);
    tt_module *divided = tt_nn_vocab_parallel_embedding(WORDS, OUT, group);
    CHECK(plain && divided);
    tt_tensor *words = tt_from_data(((int64_t[]){0, 23, 7, 7, 11, 12, 1, 22}), TT_SHAPE(2, 4), TT_I64);
    tt_tensor *y = tt_module_forward(plain, words), *q = tt_module_forward(divided, words);
    CHECK(q && tt_equal(q, y));
    tt_tensor *g = drawn(2, tt_tensor_shape(y));
    backward_of(y, g);
    backward_of(q, g);
    CHECK(difference(tt_grad(parameter(divided, "weight")), part(tt_grad(parameter(plain, "weight")), 0, group)) <
          1e-6);
    tt_tensor_i64(words)[3] = WORDS;
    CHECK(!tt_module_forward(divided, words) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("expected classes in 0..23, got 24 at 3");
    tt_module_free(plain), tt_module_free(divided);
}

/* A word whose row is not finite is no one else's, nor is what comes back for theirs. */
static void broken_row(tt_group *group) {
    TT_AUTO_SCOPE;
    tt_manual_seed(5);
    tt_module *divided = tt_nn_vocab_parallel_embedding(WORDS, 2, group);
    tt_tensor *weight = parameter(divided, "weight");
    if (tt_get_rank(group) == 0) {
        TT_NO_GRAD;
        tt_tensor_f32(weight)[0] = NAN;
    }
    tt_tensor *word = tt_full(TT_SHAPE(1), TT_I64, WORDS - 1), *y = tt_module_forward(divided, word);
    CHECK(y && !has_nan(y));
    backward_of(y, tt_full(TT_SHAPE(1, 2), TT_F32, INFINITY));
    CHECK(!has_nan(tt_grad(weight)));
    tt_module_free(divided);
}

/* ---- the loss ---- */

static void one_loss(tt_group *group, tt_reduction reduction, bool ignores) {
    TT_AUTO_SCOPE;
    tt_tensor *t = tt_from_data(((int64_t[]){0, 23, 7, 13, 11, 12}), TT_SHAPE(BATCH), TT_I64);
    tt_index ignore = ignores ? TT_INDEX(7) : (tt_index){0};
    tt_tensor *x = tt_requires_grad_(tt_scale(drawn(3, TT_SHAPE(BATCH, WORDS)), 20), true);
    tt_tensor *z = tt_requires_grad_(tt_clone(tt_detach(tt_contiguous(part(x, 1, group)))), true);
    tt_tensor *loss = tt_cross_entropy(x, t, .ignore_index = ignore, .reduction = reduction);
    tt_tensor *mine = tt_tp_cross_entropy(z, t, group, .ignore_index = ignore, .reduction = reduction);
    CHECK(loss && mine && difference(mine, loss) < 1e-5);
    tt_tensor *g = drawn(4, tt_tensor_shape(loss));
    backward_of(loss, g);
    backward_of(mine, g);
    CHECK(difference(tt_grad(z), part(tt_grad(x), 1, group)) < 1e-6);
}

/* Logits that are masked: at both ends, all of a rank's own, all of an ignored row's, and that of a target. */
static void masked_logits(tt_group *group) {
    TT_AUTO_SCOPE;
    tt_tensor *t = tt_from_data(((int64_t[]){1, 22, 23, -100, 20, 3}), TT_SHAPE(BATCH), TT_I64);
    tt_tensor *x = tt_scale(drawn(3, TT_SHAPE(BATCH, WORDS)), 5), *losses[2], *z;
    int64_t own = WORDS / tt_get_world_size(group);
    for (int64_t b = 0; b < BATCH; b++)
        tt_tensor_f32(x)[b * WORDS] = tt_tensor_f32(x)[b * WORDS + own % WORDS] = -INFINITY;
    for (int64_t v = 0; v < WORDS; v++)
        if (v < own % WORDS) /* not where one rank has all */
            tt_tensor_f32(x)[4 * WORDS + v] = -INFINITY;
    CHECK(tt_requires_grad_(x, true));
    z = tt_requires_grad_(tt_clone(tt_detach(tt_contiguous(part(x, 1, group)))), true);
    CHECK((losses[0] = tt_cross_entropy(x, t)) && (losses[1] = tt_tp_cross_entropy(z, t, group)));
    CHECK(isfinite(tt_tensor_f32(losses[0])[0]) && difference(losses[1], losses[0]) < 1e-5);
    backward_of(losses[0], tt_ones(TT_SCALAR, TT_F32));
    backward_of(losses[1], tt_ones(TT_SCALAR, TT_F32));
    CHECK(!has_nan(tt_grad(z)) && difference(tt_grad(z), part(tt_grad(x), 1, group)) < 1e-6);
    TT_NO_GRAD;
    for (int64_t v = 0; v < own; v++)
        tt_tensor_f32(z)[3 * own + v] = -INFINITY; /* the ignored row */
    CHECK(difference(tt_tp_cross_entropy(z, t, group), losses[0]) < 1e-5);
    tt_tensor_i64(t)[0] = 0; /* is masked */
    float loss = tt_tensor_f32(tt_tp_cross_entropy(z, t, group))[0];
    CHECK(isinf(loss) && loss > 0);
}

/* Central differences of this rank's logits, in f64. */
static void finite_differences(tt_group *group) {
    TT_AUTO_SCOPE;
    tt_tensor *t = tt_from_data(((int64_t[]){3, 22}), TT_SHAPE(2), TT_I64);
    tt_tensor *x = tt_to(part(drawn(6, TT_SHAPE(2, WORDS)), 1, group), TT_F64),
              *z = tt_requires_grad_(tt_clone(x), true);
    CHECK_OK(tt_backward(tt_tp_cross_entropy(z, t, group)));
    const double *g = tt_tensor_data(tt_grad(z)), h = 1e-5;
    int64_t own = WORDS / tt_get_world_size(group);
    for (int64_t i = 0; i < 2 * WORDS; i++) { /* every logit in turn, on the rank that has it */
        int64_t column = i % WORDS, at = i / WORDS * own + column % own;
        bool is_mine = column / own == tt_get_rank(group);
        double side[2];
        for (int k = 0; k < 2; k++) {
            tt_tensor *moved = tt_clone(x);
            if (is_mine)
                ((double *)tt_tensor_data(moved))[at] += k ? h : -h;
            CHECK_OK(tt_item(tt_tp_cross_entropy(moved, t, group), &side[k]));
        }
        CHECK(!is_mine || fabs((side[1] - side[0]) / (2 * h) - g[at]) < 1e-7);
    }
}

static void half_logits(tt_group *group) {
    TT_AUTO_SCOPE;
    tt_tensor *t = tt_from_data(((int64_t[]){0, 23, 7, 13, 11, 12}), TT_SHAPE(BATCH), TT_I64);
    tt_tensor *x = tt_to(drawn(3, TT_SHAPE(BATCH, WORDS)), TT_BF16);
    tt_tensor *z = tt_requires_grad_(tt_contiguous(part(x, 1, group)), true);
    tt_tensor *loss = tt_tp_cross_entropy(z, t, group);
    CHECK(difference(loss, tt_cross_entropy(tt_to(x, TT_F32), t)) < 1e-6);
    CHECK_OK(tt_backward(loss));
    CHECK(tt_tensor_dtype(tt_grad(z)) == TT_BF16);
}

/* In bf16 where the plain layers are, and with gradients in f32. */
static void under_autocast(tt_group *group) {
    TT_AUTO_SCOPE;
    tt_manual_seed(5);
    tt_module *plain = tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_relu(), tt_nn_linear(HIDDEN, OUT));
    tt_manual_seed(5);
    tt_module *divided = tt_nn_sequential(tt_nn_column_parallel_linear(IN, HIDDEN, group), tt_nn_relu(),
                                          tt_nn_row_parallel_linear(HIDDEN, OUT, group));
    tt_tensor *x = drawn(1, TT_SHAPE(BATCH, IN)), *y, *q;
    {
        TT_AUTOCAST(TT_BF16);
        y = tt_module_forward(plain, x), q = tt_module_forward(divided, x);
    }
    CHECK(tt_tensor_dtype(q) == TT_BF16 && tt_tensor_dtype(y) == TT_BF16);
    CHECK(difference(tt_to(q, TT_F32), tt_to(y, TT_F32)) < 0.05);
    CHECK_OK(tt_backward(tt_sum(q)));
    CHECK(tt_tensor_dtype(tt_grad(parameter(divided, "2.bias"))) == TT_F32);
    tt_module_free(plain), tt_module_free(divided);
}

static void layers(tt_group *group, int rank, void *user) {
    (void)rank, (void)user;
    for (int i = 0; i < 2; i++) {
        column_layer(group, i);
        row_layer(group, i);
        one_loss(group, TT_REDUCTION_MEAN, i);
        one_loss(group, TT_REDUCTION_SUM, i);
        one_loss(group, TT_REDUCTION_NONE, i);
    }
    embedding_layer(group);
    masked_logits(group);
    broken_row(group);
    finite_differences(group);
    half_logits(group);
    under_autocast(group);
}

/* ---- a model, also in copies ---- */

static tt_module *whole_model(void) {
    tt_manual_seed(9);
    return tt_nn_sequential(tt_nn_embedding(WORDS, IN), tt_nn_linear(IN, HIDDEN), tt_nn_gelu(),
                            tt_nn_linear(HIDDEN, IN), tt_nn_linear(IN, WORDS));
}

static tt_module *divided_model(tt_group *tp) {
    tt_manual_seed(9);
    return tt_nn_sequential(tt_nn_vocab_parallel_embedding(WORDS, IN, tp), tt_nn_column_parallel_linear(IN, HIDDEN, tp),
                            tt_nn_gelu(), tt_nn_row_parallel_linear(HIDDEN, IN, tp),
                            tt_nn_column_parallel_linear(IN, WORDS, tp));
}

static tt_tensor *words_of(int number) {
    tt_generator *g = tt_generator_new((uint64_t)number);
    tt_tensor *x = tt_randint(0, WORDS, TT_SHAPE(BATCH), g);
    tt_generator_free(g);
    return x;
}

static tt_optimizer *adam(tt_module *m) { return tt_adam(tt_module_parameters(m), 0.01); }

/* `copies` batches a step, whose gradients are averaged. */
static void train_whole(tt_module *m, int copies) {
    tt_optimizer *o = adam(m);
    for (int s = 0; s < STEPS; s++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(o);
        for (int c = 0; c < copies; c++) {
            tt_tensor *x = words_of(s * copies + c), *t = words_of(1000 + s * copies + c);
            CHECK_OK(tt_backward(tt_scale(tt_cross_entropy(tt_module_forward(m, x), t), 1.0 / copies)));
        }
        CHECK_OK(tt_optimizer_step(o));
    }
    tt_optimizer_free(o);
}

static void train_divided(tt_module *m, tt_group *tp, int copies, int copy) {
    tt_optimizer *o = adam(m);
    for (int s = 0; s < STEPS; s++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(o);
        tt_tensor *x = words_of(s * copies + copy), *t = words_of(1000 + s * copies + copy);
        CHECK_OK(tt_backward(tt_tp_cross_entropy(tt_module_forward(m, x), t, tp)));
        CHECK_OK(tt_optimizer_step(o));
    }
    tt_optimizer_free(o);
}

static void check_same_state(tt_module *a, tt_module *b, double tolerance) {
    const tt_named_tensors *p = tt_module_state_dict(a), *q = tt_module_state_dict(b);
    CHECK(p->count == q->count);
    for (int64_t i = 0; i < p->count; i++)
        CHECK(strcmp(p->names[i], q->names[i]) == 0 && difference(p->tensors[i], q->tensors[i]) <= tolerance);
}

static void models(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    int copies = *(const int *)user;
    tt_mesh *mesh = NULL;
    CHECK_OK(tt_init_device_mesh(&mesh, group, {"dp", copies}, {"tp", -1}));
    tt_group *tp = tt_mesh_get_group(mesh, "tp");
    tt_module *whole = whole_model(), *divided = divided_model(tp), *joined = whole_model(), *other = divided_model(tp);
    CHECK(divided && other);
    tt_module *ddp = copies > 1 ? tt_ddp(divided, tt_mesh_get_group(mesh, "dp")) : NULL;
    train_whole(whole, copies);
    train_divided(ddp ? ddp : divided, tp, copies, tt_mesh_get_local_rank(mesh, "dp"));
    CHECK_OK(tt_tp_save_state_dict(ddp ? ddp : divided, rank % 2 ? NULL : tt_module_state_dict(joined)));
    if (rank % 2 == 0)
        check_same_state(joined, whole, 2e-6);
    CHECK_OK(tt_tp_load_state_dict(other, tt_module_state_dict(whole)));
    check_same_state(divided, other, 2e-6);
    tt_module_free(ddp);
    tt_module_free(whole), tt_module_free(divided), tt_module_free(joined), tt_module_free(other);
    tt_mesh_free(mesh);
}

/* ---- what is refused ---- */

static void refused(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_manual_seed(1);
    CHECK(!tt_nn_column_parallel_linear(4, 5, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT(
        "tt_nn_column_parallel_linear: expected out_features to be a multiple of the 2 ranks of the group, got 5");
    CHECK(!tt_nn_row_parallel_linear(5, 4, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("expected in_features to be a multiple of the 2 ranks of the group, got 5");
    CHECK(!tt_nn_vocab_parallel_embedding(7, 4, group));
    CHECK_TEXT("expected num_embeddings to be a multiple of the 2 ranks of the group, got 7");
    CHECK(!tt_nn_column_parallel_linear(0, 4, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_nn_row_parallel_linear(4, 4, NULL) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_nn_column_parallel_linear(4, rank ? 8 : 6, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has a linear layer 4 -> 8 of f32, with bias where rank 0 has a linear layer 4 -> 6 of f32");
    CHECK(!tt_nn_row_parallel_linear(4, 4, group, .no_bias = rank) && tt_last_status() == TT_ERR_MISMATCH);
    tt_manual_seed((uint64_t)rank);
    CHECK(!tt_nn_column_parallel_linear(4, 4, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("seed their generators alike (tt_manual_seed())");
    CHECK(!tt_tp_scatter(tt_ones(TT_SHAPE(2, 3), TT_F32), group) && tt_last_status() == TT_ERR_SHAPE);
    CHECK(!tt_tp_copy(tt_ones(TT_SHAPE(2), TT_F32), NULL) && tt_last_status() == TT_ERR_INVALID);
    tt_tensor *x = tt_ones(TT_SHAPE(2, 3), TT_F32), *t = tt_zeros(TT_SHAPE(2), TT_I64);
    CHECK(!tt_tp_cross_entropy(x, tt_zeros(TT_SHAPE(3), TT_I64), group) && tt_last_status() == TT_ERR_SHAPE);
    CHECK(!tt_tp_cross_entropy(x, x, group) && !tt_tp_cross_entropy(x, t, NULL));
    tt_tensor_i64(t)[1] = 6;
    CHECK(!tt_tp_cross_entropy(x, t, group) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("expected classes in 0..5, got 6 at 1");
    CHECK(!tt_tp_cross_entropy(tt_ones(TT_SHAPE(2, 3 + rank), TT_F32), t, group));
    CHECK(tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("expected as many classes on all ranks"); /* also where only one takes 6 for a class */
    tt_tensor_i64(t)[1] = 5;
    CHECK(tt_tp_cross_entropy(x, t, group)); /* the group lives on */
}

static void refused_state(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_manual_seed(1);
    tt_module *m = tt_nn_column_parallel_linear(4, 6, group), *plain = tt_nn_linear(4, 8), *none = tt_nn_relu();
    CHECK(tt_tp_load_state_dict(m, tt_module_state_dict(plain)) == TT_ERR_SHAPE);
    CHECK_TEXT("tt_tp_load_state_dict: \"weight\": expected the whole tensor f32 (6, 4), got f32 (8, 4)");
    CHECK(tt_tp_save_state_dict(m, tt_module_state_dict(plain)) == TT_ERR_SHAPE);
    CHECK_TEXT("\"weight\": expected room for the whole tensor f32 (6, 4), got f32 (8, 4)");
    CHECK(tt_tp_load_state_dict(m, tt_module_state_dict(none)) == TT_ERR_NOT_FOUND);
    CHECK(tt_tp_save_state_dict(m, tt_module_state_dict(none)) == TT_ERR_NOT_FOUND);
    const tt_named_tensors *full = rank ? NULL : TT_NAMED_TENSORS(2, NULL, NULL); /* malformed: rank 1 is not held up */
    CHECK(tt_tp_save_state_dict(m, full) == (rank ? TT_OK : TT_ERR_INVALID));
    CHECK(tt_tp_load_state_dict(NULL, tt_module_state_dict(plain)) != TT_OK && tt_tp_load_state_dict(m, NULL) != TT_OK);
    tt_module_free(m), tt_module_free(plain), tt_module_free(none);
}

/* Different batches: every rank is told, by the call that meets them. */
static void other_batches(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_manual_seed(1);
    tt_module *m = tt_nn_row_parallel_linear(4, 6, group);
    CHECK(!tt_module_forward(m, tt_ones(TT_SHAPE(3 + rank, 2), TT_F32)) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("tt_nn_row_parallel_linear: ");
    CHECK_TEXT("18");
    CHECK_TEXT("24");
    tt_module_free(m);
}

static void test_layers(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, layers, NULL), 0);
}

static void test_models(void **state) {
    (void)state;
    int one = 1, two = 2;
    for (int world = 1; world <= 4; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, models, &one), 0);
    assert_int_equal(run_ranks(4, models, &two), 0);
}

static void test_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refused, NULL), 0);
    assert_int_equal(run_ranks(2, refused_state, NULL), 0);
    assert_int_equal(run_ranks(2, other_batches, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
