/* RNN, LSTM, GRU: PyTorch's initial bits, results and gradients; modes; what they refuse. */
#include "module_vectors.h"

#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <tutti/init.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tt_module *rnn_tanh(tt_dtype dtype) { return tt_nn_rnn(4, 3, .dtype = dtype); }
static tt_module *rnn_relu(tt_dtype dtype) { return tt_nn_rnn(4, 3, .relu = true, .dtype = dtype); }
static tt_module *lstm(tt_dtype dtype) { return tt_nn_lstm(4, 3, .dtype = dtype); }
static tt_module *lstm_deep(tt_dtype dtype) {
    return tt_nn_lstm(4, 6, .num_layers = 2, .batch_first = true, .bidirectional = true, .dtype = dtype);
}
static tt_module *lstm_unbatched(tt_dtype dtype) {
    return tt_nn_lstm(4, 3, .bidirectional = true, .no_bias = true, .dtype = dtype);
}
static tt_module *gru(tt_dtype dtype) { return tt_nn_gru(4, 3, .dtype = dtype); }
static tt_module *gru_both_ways(tt_dtype dtype) { return tt_nn_gru(4, 3, .bidirectional = true, .dtype = dtype); }
static tt_module *gru_deep(tt_dtype dtype) {
    return tt_nn_gru(4, 17, .num_layers = 2, .batch_first = true, .dtype = dtype);
}
static tt_module *gru_unbatched(tt_dtype dtype) {
    return tt_nn_gru(4, 3, .num_layers = 2, .no_bias = true, .dtype = dtype);
}

static void recurrences_are_pytorchs(void **state) {
    (void)state;
    static const module_case plain[] = {{.name = "rnn tanh", .make = rnn_tanh}, {.name = "rnn relu", .make = rnn_relu}};
    static const module_case lstms[] = {{.name = "lstm", .make = lstm},
                                        {.name = "lstm f64", .make = lstm},
                                        {.name = "lstm deep", .make = lstm_deep},
                                        {.name = "lstm unbatched", .make = lstm_unbatched}};
    static const module_case grus[] = {{.name = "gru", .make = gru},
                                       {.name = "gru f64", .make = gru_both_ways},
                                       {.name = "gru deep", .make = gru_deep},
                                       {.name = "gru unbatched", .make = gru_unbatched}};
    expect_modules_like_torch("torch-modules.json", "rnn", plain, COUNT(plain));
    expect_modules_like_torch("torch-modules.json", "lstm", lstms, COUNT(lstms));
    expect_modules_like_torch("torch-modules.json", "gru", grus, COUNT(grus));
}

static tt_module *cell_relu(tt_dtype dtype) { return tt_nn_rnn_cell(4, 3, .relu = true, .dtype = dtype); }
static tt_module *cell_lstm(tt_dtype dtype) { return tt_nn_lstm_cell(4, 3, .dtype = dtype); }
static tt_module *cell_lstm_unbiased(tt_dtype dtype) { return tt_nn_lstm_cell(4, 3, .no_bias = true, .dtype = dtype); }
static tt_module *cell_gru(tt_dtype dtype) { return tt_nn_gru_cell(4, 3, .dtype = dtype); }

static void cells_are_pytorchs(void **state) {
    (void)state;
    static const module_case cells[] = {
        {.name = "cell rnn", .make = cell_relu},
        {.name = "cell lstm", .make = cell_lstm},
        {.name = "cell lstm f64", .make = cell_lstm_unbiased},
        {.name = "cell gru", .make = cell_gru},
        {.name = "cell gru unbatched", .make = cell_gru},
    };
    expect_modules_like_torch("torch-modules.json", "cell", cells, COUNT(cells));
}

/* ---- forms of a call ---- */

static tt_tensor *some(tt_shape shape) { return vector_values(shape, 29, TT_F32); }

static void a_state_of_zeros_is_the_default(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_lstm(4, 3);
    tt_tensor *x = some(TT_SHAPE(5, 2, 4)), *zeros = tt_zeros(TT_SHAPE(1, 2, 3), TT_F32), *out[3], *y;
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, zeros, zeros), out, 3), TT_OK);
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x), &y, 1), TT_OK);
    assert_true(tt_equal(y, out[0]) && tt_equal(tt_module_forward(m, x), y));
    assert_true(tt_equal(tt_select(out[1], 0, 0), tt_select(y, 0, 4)));
    tt_module_free(m);
}

/* Two halves, the state handed on, are one whole. */
static void a_sequence_may_be_cut(void **state) {
    (void)state;
    tt_module *all[] = {tt_nn_lstm(4, 3, .num_layers = 2), tt_nn_gru(4, 3, .num_layers = 2), tt_nn_rnn(4, 3)};
    for (int k = 0; k < 3; k++) {
        TT_AUTO_SCOPE;
        int64_t n = k == 0 ? 3 : 2;
        tt_tensor *x = some(TT_SHAPE(6, 2, 4)), *whole[3], *first[3], *second[3];
        tt_tensor *half = tt_narrow(x, 0, 0, 2), *rest = tt_narrow(x, 0, 2, 4);
        assert_int_equal(tt_module_forward_many(all[k], &x, 1, whole, n), TT_OK);
        assert_int_equal(tt_module_forward_many(all[k], &half, 1, first, n), TT_OK);
        first[0] = rest;
        assert_int_equal(tt_module_forward_many(all[k], first, n, second, n), TT_OK);
        expect_close("the second half", "", second[0], tt_narrow(whole[0], 0, 2, 4), 1e-6);
        for (int64_t i = 1; i < n; i++)
            expect_close("the last state", "", second[i], whole[i], 1e-6);
        tt_module_free(all[k]);
    }
}

/* The gradient of the last states alone reaches everything. */
static void last_states_have_gradients(void **state) {
    (void)state;
    for (int which = 1; which < 3; which++) {
        TT_AUTO_SCOPE;
        tt_module *m = tt_nn_lstm(4, 3, .bidirectional = true, .dtype = TT_F64);
        tt_tensor *x = tt_requires_grad_(vector_values(TT_SHAPE(3, 2, 4), 29, TT_F64), true), *out[3];
        assert_int_equal(tt_module_forward_many(m, &x, 1, out, 3), TT_OK);
        assert_int_equal(tt_backward(tt_sum(out[which])), TT_OK);
        double sum, shifted, step = 1e-6, slope;
        assert_int_equal(tt_item(tt_sum(tt_grad(x)), &slope), TT_OK); /* along (1, 1, ...) */
        assert_int_equal(tt_item(tt_sum(out[which]), &sum), TT_OK);
        tt_tensor *moved = tt_add_scalar(tt_detach(x), step);
        assert_int_equal(tt_module_forward_many(m, &moved, 1, out, 3), TT_OK);
        assert_int_equal(tt_item(tt_sum(out[which]), &shifted), TT_OK);
        assert_true(fabs((shifted - sum) / step - slope) < 1e-5);
        for (int64_t i = 0; i < tt_module_parameters(m)->count; i++)
            assert_non_null(tt_grad(tt_module_parameters(m)->tensors[i]));
        tt_module_free(m);
    }
}

static void dropout_follows_the_mode(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_manual_seed(3);
    tt_module *with = tt_nn_gru(4, 3, .num_layers = 2, .dropout = 0.5);
    tt_manual_seed(3);
    tt_module *without = tt_nn_gru(4, 3, .num_layers = 2);
    tt_tensor *x = some(TT_SHAPE(5, 2, 4)), *y = tt_module_forward(without, x);
    assert_false(tt_equal(tt_module_forward(with, x), y));
    tt_module_eval(with);
    assert_true(tt_equal(tt_module_forward(with, x), y));
    tt_module_free(with);
    tt_module_free(without);
}

static void an_empty_batch_gives_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *all[] = {tt_nn_lstm(4, 3), tt_nn_gru(4, 3), tt_nn_rnn(4, 3)};
    for (int k = 0; k < 3; k++) {
        tt_tensor *y = tt_module_forward(all[k], tt_zeros(TT_SHAPE(5, 0, 4), TT_F32));
        assert_int_equal(tt_tensor_size(y, 2), 3);
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        double largest = 1;
        tt_tensor *weight = tt_module_parameters(all[k])->tensors[1];
        assert_int_equal(tt_item(tt_max(tt_abs(tt_grad(weight))), &largest), TT_OK);
        assert_true(largest == 0);
        tt_module_free(all[k]);
    }
}

static void an_overwritten_state_is_seen(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_gru(4, 3);
    tt_tensor *y = tt_module_forward(m, some(TT_SHAPE(5, 2, 4))), *loss = tt_sum(y);
    assert_int_equal(tt_init_zeros_(tt_named_tensors_find(tt_module_parameters(m), "weight_hh_l0")), TT_OK);
    assert_int_equal(tt_backward(loss), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "GRU needs \"weight_hh\"");
    tt_module_free(m);
}

/* The fast kernels and the plain loops. */
static void devices_agree(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *(*const make[])(tt_dtype) = {rnn_tanh, rnn_relu, lstm_deep, gru_deep};
    for (size_t k = 0; k < COUNT(make); k++) {
        tt_tensor *y[2], *x = some(TT_SHAPE(6, 3, 4));
        tt_module *m[2];
        for (int d = 0; d < 2; d++) {
            tt_manual_seed(k);
            m[d] = make[k](TT_F32);
            const tt_device *device = tt_device_get(d ? "reference" : "cpu");
            assert_int_equal(tt_module_to_device(m[d], device), TT_OK);
            y[d] = tt_module_forward(m[d], tt_to_device(x, device));
            assert_int_equal(tt_backward(tt_sum(tt_mul(y[d], y[d]))), TT_OK);
        }
        const tt_device *cpu = tt_device_get("cpu");
        expect_close("a result of", tt_module_class_name(m[0]), y[0], tt_to_device(y[1], cpu), 1e-6);
        const tt_named_tensors *fast = tt_module_parameters(m[0]), *slow = tt_module_parameters(m[1]);
        for (int64_t i = 0; i < fast->count; i++)
            expect_close("the gradient of", fast->names[i], tt_grad(fast->tensors[i]),
                         tt_to_device(tt_grad(slow->tensors[i]), cpu), 1e-5);
        tt_module_free(m[0]);
        tt_module_free(m[1]);
    }
}

/* ---- what is refused ---- */

static void what_cannot_be_made_is_refused(void **state) {
    (void)state;
    assert_null(tt_nn_lstm(0, 3));
    expect_error(TT_ERR_INVALID, "tt_nn_lstm: expected sizes of at least 1, got input_size 0, hidden_size 3");
    assert_null(tt_nn_gru(3, 3, .num_layers = -1));
    expect_error(TT_ERR_INVALID, "tt_nn_gru: expected num_layers in 0..1000, got -1");
    assert_null(tt_nn_gru(3, 3, .num_layers = INT64_MAX));
    expect_error(TT_ERR_INVALID, "tt_nn_gru: expected num_layers in 0..1000");
    assert_null(tt_nn_gru(3, INT64_MAX / 3));
    tt_clear_error();
    assert_null(tt_nn_lstm_cell(3, 0));
    expect_error(TT_ERR_INVALID, "tt_nn_lstm_cell: expected sizes of at least 1, got input_size 3, hidden_size 0");
    assert_null(tt_nn_gru_cell(3, 3, .relu = true));
    expect_error(TT_ERR_INVALID, "tt_nn_gru_cell: .relu is an option of tt_nn_rnn_cell() only");
    assert_null(tt_nn_gru(3, 3, .dropout = 1.5));
    expect_error(TT_ERR_INVALID, "tt_nn_gru: expected dropout in 0..1, got 1.5");
    assert_null(tt_nn_lstm(3, 3, .relu = true));
    expect_error(TT_ERR_INVALID, "tt_nn_lstm: .relu is an option of tt_nn_rnn() only");
    assert_null(tt_nn_rnn(3, 3, .dtype = TT_BF16));
    expect_error(TT_ERR_DTYPE, "tt_nn_rnn: expected dtype f32 or f64");
}

static void wrong_inputs_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_lstm(4, 3, .batch_first = true);
    tt_tensor *x = some(TT_SHAPE(2, 5, 4)), *h = some(TT_SHAPE(1, 2, 3)), *out[3];
    assert_null(tt_module_forward(m, some(TT_SHAPE(2, 5, 3))));
    expect_error(TT_ERR_SHAPE, "forward: a LSTM expected x (B, T, 4) or, without a batch, (T, 4), got x f32 (2, 5, 3)");
    assert_null(tt_module_forward(m, some(TT_SHAPE(4))));
    expect_error(TT_ERR_SHAPE, "a LSTM expected x (B, T, 4)");
    assert_null(tt_module_forward(m, some(TT_SHAPE(2, 0, 4))));
    expect_error(TT_ERR_SHAPE, "a LSTM expected at least one step, got x f32 (2, 0, 4)");
    assert_null(tt_module_forward(m, tt_to(x, TT_F64)));
    expect_error(TT_ERR_DTYPE, "a LSTM of f32 parameters expected x of that type, got f64 (2, 5, 4)");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, h), out, 3), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID,
                 "a LSTM takes x, or x, h_0 and c_0, and gives output, or output, h_n and c_n; 2 tensors");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, h, some(TT_SHAPE(1, 3, 3))), out, 3), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "a LSTM expected c_0 (1, 2, 3) for x f32 (2, 5, 4), got f32 (1, 3, 3)");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, h, tt_to(h, TT_F64)), out, 3), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "expected c_0 of that type, got f64");
    tt_tensor *elsewhere = tt_to_device(x, tt_device_get("reference"));
    assert_null(tt_module_forward(m, elsewhere));
    expect_error(TT_ERR_INVALID, "a LSTM on the device \"cpu\" expected x there, got f32 (2, 5, 4) on \"reference\"");
    tt_module_free(m);
}

static void cells_refuse_wrong_inputs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_lstm_cell(4, 3);
    tt_tensor *x = some(TT_SHAPE(2, 4)), *h = some(TT_SHAPE(2, 3)), *out[2];
    assert_null(tt_module_forward(m, some(TT_SHAPE(2, 2, 4))));
    expect_error(TT_ERR_SHAPE, "a LSTMCell expected x of 4 values for each sequence, (B, ...), got f32 (2, 2, 4)");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, h, some(TT_SHAPE(1, 3))), out, 2), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "a LSTMCell expected c of 3 values for each sequence, (B, ...), got f32 (1, 3)");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, h), out, 2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "a LSTMCell takes x, or x, h and c, and gives h, or h and c; 2 tensors came");
    assert_null(tt_module_forward(m, tt_to(x, TT_F64)));
    expect_error(TT_ERR_DTYPE, "a LSTMCell of f32 parameters expected x of that type, got f64 (2, 4)");
    assert_null(tt_module_forward(m, some(TT_SHAPE(3))));
    expect_error(TT_ERR_SHAPE, "a LSTMCell expected x of 4 values, without a batch, got f32 (3)");
    tt_module_free(m);
}

/* ---- memory ---- */

static tt_status train_step(tt_module *m, bool scope) {
    int begun = scope ? tt_scope_begin() : 0;
    int64_t n = strcmp(tt_module_class_name(m), "LSTM") ? 2 : 3;
    tt_tensor *x = tt_ones(TT_SHAPE(3, 2, 4), TT_F32), *out[3] = {NULL};
    tt_status status = x ? tt_module_forward_many(m, &x, 1, out, n) : tt_last_status();
    tt_tensor *loss = status ? NULL : tt_sum(out[0]);
    if (!status)
        status = loss ? tt_backward(loss) : tt_last_status();
    if (scope) {
        tt_scope_end(begun);
    } else {
        tt_tensor_free(loss);
        for (int64_t i = 0; i < n; i++)
            tt_tensor_free(out[i]);
        tt_tensor_free(x);
    }
    return status;
}

static tt_module *stacked(bool is_lstm) {
    return is_lstm ? tt_nn_lstm(4, 3, .num_layers = 2, .bidirectional = true, .batch_first = true, .dropout = 0.1)
                   : tt_nn_gru(4, 3, .num_layers = 2, .bidirectional = true, .batch_first = true, .dropout = 0.1);
}

/* One step of a cell, without a scope. */
static tt_status cell_step(tt_module *m) {
    tt_tensor *x = tt_ones(TT_SHAPE(2, 4), TT_F32), *out[2] = {NULL};
    tt_status status = x ? tt_module_forward_many(m, &x, 1, out, 2) : tt_last_status();
    tt_tensor *loss = status ? NULL : tt_sum(out[1]);
    if (!status)
        status = loss ? tt_backward(loss) : tt_last_status();
    tt_tensor_free(loss);
    tt_tensor_free(out[0]);
    tt_tensor_free(out[1]);
    tt_tensor_free(x);
    return status;
}

static tt_status make_and_step(void *arg) {
    (void)arg;
    tt_module *m = tt_nn_lstm_cell(4, 3);
    tt_status status = m ? cell_step(m) : tt_last_status();
    tt_module_free(m);
    return status;
}

/* What a forward makes on the way goes by itself, also where no scope frees it. */
static void nothing_is_left_without_a_scope(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int k = 0; k < 2; k++) {
        tt_module *m = stacked(k);
        assert_int_equal(train_step(m, false), TT_OK);
        long before = alloc_in_use();
        assert_int_equal(train_step(m, false), TT_OK);
        assert_int_equal(alloc_in_use(), before);
        tt_module_free(m);
    }
    long before = alloc_in_use();
    assert_int_equal(make_and_step(NULL), TT_OK);
    assert_int_equal(alloc_in_use(), before);
}

static void steady_steps_allocate_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int k = 0; k < 2; k++) {
        tt_module *m = stacked(k);
        for (int i = 0; i < 3; i++)
            assert_int_equal(train_step(m, true), TT_OK);
        long before = alloc_count_own;
        for (int i = 0; i < 3; i++)
            assert_int_equal(train_step(m, true), TT_OK);
        assert_int_equal(alloc_count_own - before, 0);
        tt_module_free(m);
    }
}

static tt_status make_and_train(void *arg) {
    tt_module *m = stacked(*(const bool *)arg);
    tt_status status = m ? train_step(m, true) : tt_last_status();
    tt_module_free(m);
    return status;
}

static void out_of_memory_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int k = 0; k < 2; k++)
        assert_true(alloc_fail_each(make_and_train, &(bool){k}, ALLOC_ENDS) > 50);
    assert_true(alloc_fail_each(make_and_step, NULL, ALLOC_ENDS) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_of_zeros_is_the_default),
        cmocka_unit_test(a_sequence_may_be_cut),
        cmocka_unit_test(last_states_have_gradients),
        cmocka_unit_test(dropout_follows_the_mode),
        cmocka_unit_test(an_empty_batch_gives_nothing),
        cmocka_unit_test(an_overwritten_state_is_seen),
        cmocka_unit_test(cells_are_pytorchs),
        cmocka_unit_test(cells_refuse_wrong_inputs),
        cmocka_unit_test(devices_agree),
        cmocka_unit_test(what_cannot_be_made_is_refused),
        cmocka_unit_test(wrong_inputs_are_refused),
        cmocka_unit_test(nothing_is_left_without_a_scope),
        cmocka_unit_test(steady_steps_allocate_nothing),
        cmocka_unit_test(out_of_memory_is_an_error),
        cmocka_unit_test(recurrences_are_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
