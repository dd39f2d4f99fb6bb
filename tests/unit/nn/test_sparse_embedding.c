/* Embeddings with gradients of the rows that were read: the bits of the dense embedding in all that both have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/data_parallel.h>
#include <tutti/optim.h>

#include "tensor/core/tensor.h"
#include "unit/expect.h"

enum { ROWS = 40, COLUMNS = 5, READ = 12 };

static const char *const table_name[] = {"table"};
static const int64_t padding = 3;

typedef tt_optimizer *(*table_maker)(const tt_named_tensors *params);

static tt_optimizer *make_sgd(const tt_named_tensors *params) { return tt_sgd(params, 0.1); }
static tt_optimizer *make_climbing(const tt_named_tensors *params) { return tt_sgd(params, 0.1, .maximize = true); }
static tt_optimizer *make_adagrad(const tt_named_tensors *params) {
    return tt_adagrad(params, 0.1, .initial_accumulator_value = 0.5, .lr_decay = 0.1);
}

static tt_tensor *new_table(tt_dtype dtype) {
    tt_tensor *table = tt_empty(TT_SHAPE(ROWS, COLUMNS), dtype);
    tt_manual_seed(7);
    assert_int_equal(tt_normal_(table, 0, 1, NULL), TT_OK);
    return tt_requires_grad_(table, true);
}

/* READ rows, some of them several times, other ones in each step. */
static tt_tensor *rows_of(int step) {
    int64_t row[READ];
    for (int i = 0; i < READ; i++)
        row[i] = (step * 5 + i * i) % ROWS;
    return tt_from_data(row, TT_SHAPE(3, READ / 3), TT_I64);
}

/* Read the table, and go backward from a loss in which each place weighs differently. */
static tt_status read_table(tt_tensor *table, int step, bool sparse) {
    tt_tensor *y = tt_embedding(table, rows_of(step), .padding_idx = &padding, .sparse = sparse);
    tt_manual_seed(100 + (uint64_t)step);
    tt_tensor *weights = tt_to(tt_randn(tt_tensor_shape(y), NULL), tt_tensor_dtype(table));
    return tt_backward(tt_sum(tt_mul(y, weights)));
}

/* Is the gradient of rows that of the whole, whose other rows are zero? */
static void assert_same_gradient(const tt_tensor *sparse, const tt_tensor *whole) {
    const tt_tensor *rows = tt_sparse_grad_indices(sparse), *values = tt_sparse_grad_values(sparse);
    assert_true(rows && values && !tt_grad(sparse) && !tt_sparse_grad_values(whole));
    const tt_tensor *dense = tt_grad(whole);
    const size_t bytes = COLUMNS * tt_dtype_size(dense->dtype);
    const int64_t *row = rows->data;
    char zeros[COLUMNS * sizeof(double)] = {0};
    int64_t k = 0;
    for (int64_t v = 0; v < ROWS; v++) {
        const char *want = (const char *)dense->data + (size_t)v * bytes;
        if (k < rows->numel && row[k] == v)
            assert_memory_equal((const char *)values->data + (size_t)k++ * bytes, want, bytes);
        else
            assert_memory_equal(zeros, want, bytes);
    }
    assert_int_equal(k, rows->numel);
    assert_true(k == 0 || tt_tensor_shape(values).dim[0] == k);
}

static void gradients_are_those_of_the_dense_embedding(void **state) {
    (void)state;
    static const tt_dtype types[] = {TT_F32, TT_F64};
    for (size_t t = 0; t < 2; t++) {
        TT_AUTO_SCOPE;
        tt_tensor *sparse = new_table(types[t]), *whole = new_table(types[t]);
        assert_null(tt_sparse_grad_indices(sparse));
        for (int step = 0; step < 6; step++) { /* without zeroing: they add up */
            assert_int_equal(read_table(sparse, step, true), TT_OK);
            assert_int_equal(read_table(whole, step, false), TT_OK);
            assert_same_gradient(sparse, whole);
        }
        tt_zero_grad(sparse);
        assert_null(tt_sparse_grad_indices(sparse));
        assert_null(tt_sparse_grad_values(sparse));
        assert_int_equal(read_table(sparse, 9, true), TT_OK);
        tt_zero_grad(whole);
        assert_int_equal(read_table(whole, 9, false), TT_OK);
        assert_same_gradient(sparse, whole);
    }
}

static void what_was_read_costs_what_its_rows_cost(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *table = new_table(TT_F32);
    tt_tensor *index = tt_from_data(((int64_t[]){8, 2, 8, padding, 2, 8}), TT_SHAPE(6), TT_I64);
    assert_int_equal(tt_backward(tt_sum(tt_embedding(table, index, .padding_idx = &padding, .sparse = true))), TT_OK);
    const tt_tensor *rows = tt_sparse_grad_indices(table), *values = tt_sparse_grad_values(table);
    assert_int_equal(rows->numel, 2);
    assert_true(((const int64_t *)rows->data)[0] == 2 && ((const int64_t *)rows->data)[1] == 8);
    assert_int_equal(values->numel, 2 * COLUMNS);
    assert_true(((const float *)values->data)[0] == 2 && ((const float *)values->data)[COLUMNS] == 3);
    tt_zero_grad(table);
    tt_tensor *only = tt_from_data(&padding, TT_SHAPE(1), TT_I64);
    assert_int_equal(tt_backward(tt_sum(tt_embedding(table, only, .padding_idx = &padding, .sparse = true))), TT_OK);
    assert_int_equal(tt_tensor_numel(tt_sparse_grad_indices(table)), 0);
}

static void steps_are_those_on_dense_gradients(void **state) {
    (void)state;
    static const table_maker makers[] = {make_sgd, make_climbing, make_adagrad};
    for (int m = 0; m < 6; m++) {
        TT_AUTO_SCOPE;
        const tt_dtype dtype = m % 2 ? TT_F64 : TT_F32;
        tt_tensor *sparse = new_table(dtype), *whole = new_table(dtype);
        const tt_named_tensors *lists[] = {TT_NAMED_TENSORS(1, table_name, &sparse),
                                           TT_NAMED_TENSORS(1, table_name, &whole)};
        tt_optimizer *a = makers[m / 2](lists[0]), *b = makers[m / 2](lists[1]);
        for (int step = 0; step < 12; step++) {
            double norms[2];
            tt_optimizer_zero_grad(a);
            tt_optimizer_zero_grad(b);
            assert_int_equal(read_table(sparse, step, true), TT_OK);
            assert_int_equal(read_table(whole, step, false), TT_OK);
            assert_int_equal(tt_clip_grad_norm_(lists[0], 2, .total_norm = &norms[0]), TT_OK);
            assert_int_equal(tt_clip_grad_norm_(lists[1], 2, .total_norm = &norms[1]), TT_OK);
            assert_true(norms[0] > 2 && norms[0] - norms[1] < 1e-5 && norms[1] - norms[0] < 1e-5);
            assert_int_equal(tt_clip_grad_value_(lists[0], 0.4), TT_OK);
            assert_int_equal(tt_clip_grad_value_(lists[1], 0.4), TT_OK);
            assert_int_equal(tt_optimizer_step(a), TT_OK);
            assert_int_equal(tt_optimizer_step(b), TT_OK);
        }
        const double most = dtype == TT_F64 ? 1e-13 : 1e-6; /* the norm is summed in another order */
        for (int64_t i = 0; i < sparse->numel; i++) {
            double x = dtype == TT_F64 ? ((double *)sparse->data)[i] : (double)((float *)sparse->data)[i];
            double y = dtype == TT_F64 ? ((double *)whole->data)[i] : (double)((float *)whole->data)[i];
            assert_true(x - y <= most && y - x <= most);
        }
        tt_optimizer_free(a);
        tt_optimizer_free(b);
    }
}

static void sparse_adam_leaves_other_rows_alone(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *table = new_table(TT_F32), *before = tt_clone(tt_detach(table));
    tt_optimizer *adam = tt_sparse_adam(TT_NAMED_TENSORS(1, table_name, &table), 0.01);
    tt_tensor *index = tt_from_data(((int64_t[]){2, 8}), TT_SHAPE(2), TT_I64);
    assert_int_equal(tt_backward(tt_sum(tt_embedding(table, index, .sparse = true))), TT_OK);
    assert_int_equal(tt_optimizer_step(adam), TT_OK);
    for (int64_t i = 0; i < table->numel; i++) {
        float moved = ((const float *)before->data)[i] - ((const float *)table->data)[i];
        bool was_read = i / COLUMNS == 2 || i / COLUMNS == 8;
        /* The first step is of size lr, whatever the gradient. */
        assert_true(was_read ? moved > 0.0099F && moved < 0.0101F : moved == 0);
    }
    const tt_named_tensors *kept = tt_optimizer_state_dict(adam);
    assert_non_null(tt_named_tensors_find(kept, "state.0.exp_avg"));
    assert_non_null(tt_named_tensors_find(kept, "state.0.exp_avg_sq"));
    tt_optimizer_free(adam);
}

static void a_module_and_amp_pass_it_on(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *module = tt_nn_embedding(ROWS, COLUMNS, .sparse = true);
    tt_tensor *weight = tt_module_parameters(module)->tensors[0];
    assert_int_equal(tt_backward(tt_sum(tt_module_forward(module, rows_of(0)))), TT_OK);
    assert_non_null(tt_sparse_grad_values(weight));
    assert_int_equal(tt_module_to(module, TT_F64), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "has a sparse gradient, which is not converted");
    tt_zero_grad(weight);
    assert_null(tt_sparse_grad_values(weight));
    assert_int_equal(tt_module_to(module, TT_F64), TT_OK);
    tt_module_free(module);
}

/* ---- what takes none */

static void refuses_step(tt_optimizer *o, tt_tensor *table, const char *text) {
    tt_tensor *before = tt_clone(tt_detach(table));
    assert_int_equal(tt_optimizer_step(o), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, text);
    assert_true(tt_equal(before, tt_detach(table)));
    tt_optimizer_free(o);
}

static void others_refuse_and_change_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *table = new_table(TT_F32);
    const tt_named_tensors *list = TT_NAMED_TENSORS(1, table_name, &table);
    assert_int_equal(read_table(table, 0, true), TT_OK);
    refuses_step(tt_adam(list, 0.1), table, "tt_adam got for parameter 0, f32 (40, 5), a sparse gradient");
    refuses_step(tt_lamb(list, 0.1, 0), table, "tt_lamb got for parameter 0, f32 (40, 5), a sparse gradient");
    refuses_step(tt_sgd(list, 0.1, .momentum = 0.9), table, "which it takes without weight decay and momentum");
    refuses_step(tt_adagrad(list, 0.1, .weight_decay = 0.9), table, "which it takes without weight decay");
    tt_zero_grad(table);
    assert_int_equal(read_table(table, 0, false), TT_OK);
    refuses_step(tt_sparse_adam(list, 0.1), table, "a gradient of the whole, and takes sparse ones only");
    assert_null(tt_sparse_adam(list, 0.1, .beta1 = 1));
    expect_error(TT_ERR_INVALID, "tt_sparse_adam: expected beta1 below 1, got 1");
    assert_null(tt_sparse_adam(list, -1));
    expect_error(TT_ERR_INVALID, "tt_sparse_adam: expected a finite lr of at least 0, got -1");
}

static void both_kinds_are_not_added_up(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int first = 0; first < 2; first++) {
        tt_tensor *table = new_table(TT_F32);
        assert_int_equal(read_table(table, 0, first), TT_OK);
        assert_int_equal(read_table(table, 0, !first), TT_ERR_UNSUPPORTED);
        expect_error(TT_ERR_UNSUPPORTED, "f32 (40, 5) gets a gradient of the whole and a sparse one");
        tt_zero_grad(table);
        assert_int_equal(read_table(table, 0, !first), TT_OK);
    }
    tt_tensor *made = tt_scale(new_table(TT_F32), 2);
    assert_null(tt_embedding(made, rows_of(0), .sparse = true));
    expect_error(TT_ERR_UNSUPPORTED, ".sparse is for weights that are leaves");
    TT_NO_GRAD;
    assert_non_null(tt_embedding(made, rows_of(0), .sparse = true));
}

static void threads_refuse_it(void **state) {
    (void)state;
    tt_module *model = tt_nn_sequential(tt_nn_embedding(ROWS, COLUMNS, .sparse = true), tt_nn_linear(COLUMNS, 2));
    assert_null(tt_data_parallel(model, .replicas = 2));
    expect_error(TT_ERR_UNSUPPORTED, "tt_data_parallel: parameter \"0.weight\" is given sparse gradients");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_dense_embedding),
        cmocka_unit_test(what_was_read_costs_what_its_rows_cost),
        cmocka_unit_test(steps_are_those_on_dense_gradients),
        cmocka_unit_test(sparse_adam_leaves_other_rows_alone),
        cmocka_unit_test(a_module_and_amp_pass_it_on),
        cmocka_unit_test(others_refuse_and_change_nothing),
        cmocka_unit_test(both_kinds_are_not_added_up),
        cmocka_unit_test(threads_refuse_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
