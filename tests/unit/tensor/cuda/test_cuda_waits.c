/* What a training step on the CUDA device waits for, and errors that come later: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "tensor/ops/ops.h"
#include "unit/expect.h"

/* ---- steps ---- */

typedef struct training {
    tt_module *model;
    tt_optimizer *optimizer;
    tt_grad_scaler *scaler; /* NULL: none */
    bool clips, is_half;    /* parameters of f16, with masters */
    tt_shape shape;         /* of a batch */
} training;

static void take_step(const training *t, double *loss) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_device(tt_randn(t->shape, NULL), TT_CUDA(0));
    tt_tensor *y = tt_to_device(tt_full(S(t->shape.dim[0]), TT_I64, 3), TT_CUDA(0));
    tt_tensor *l = tt_cross_entropy(tt_module_forward(t->model, x), y);
    tt_optimizer_zero_grad(t->optimizer);
    bool failed = tt_backward(t->scaler ? tt_grad_scaler_scale(t->scaler, l) : l);
    failed = failed || (t->scaler && tt_grad_scaler_unscale_(t->scaler, t->optimizer));
    failed = failed || (t->clips && tt_clip_grad_norm_(tt_module_parameters(t->model), 0.01));
    failed = failed || (t->scaler ? tt_grad_scaler_step(t->scaler, t->optimizer) : tt_optimizer_step(t->optimizer));
    failed = failed || (t->scaler && tt_grad_scaler_update(t->scaler)) || tt_item(l, loss);
    if (failed)
        fail_msg("%s", tt_last_error());
}

/* How often does a step wait? Both objects are freed. */
static unsigned long waits_of(training t) {
    double loss;
    assert_int_equal(tt_module_to_device(t.model, TT_CUDA(0)), TT_OK);
    t.optimizer = tt_adamw(tt_module_parameters(t.model), 0.01, 0.1);
    if (t.is_half && tt_amp_initialize(t.model, t.optimizer, .opt_level = TT_O2, .dtype = TT_F16, .scaler = &t.scaler))
        fail_msg("%s", tt_last_error());
    take_step(&t, &loss);
    const unsigned long before = fake_count("fake_cuda_waits");
    take_step(&t, &loss);
    const unsigned long waits = fake_count("fake_cuda_waits") - before;
    assert_true(isfinite(loss));
    tt_optimizer_free(t.optimizer);
    tt_grad_scaler_free(t.scaler);
    tt_module_free(t.model);
    return waits;
}

static tt_module *mlp(void) { return tt_nn_sequential(tt_nn_linear(12, 16), tt_nn_relu(), tt_nn_linear(16, 5)); }

static tt_module *conv_net(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3), tt_nn_batch_norm2d(4), tt_nn_relu(), tt_nn_max_pool2d(2),
                            tt_nn_flatten(), tt_nn_dropout(0.1), tt_nn_linear(36, 5));
}

static void a_step_waits_for_its_loss_alone(void **state) {
    (void)state;
    only_on_the_fake();
    assert_int_equal(waits_of((training){.model = mlp(), .shape = S(6, 12)}), 1);
    assert_int_equal(waits_of((training){.model = conv_net(), .shape = S(6, 1, 8, 8)}), 1);
}

static void clipping_and_a_scaler_read_a_number_each(void **state) {
    (void)state;
    only_on_the_fake();
    assert_int_equal(waits_of((training){.model = mlp(), .shape = S(6, 12), .clips = true}), 2);
    assert_int_equal(waits_of((training){
                         .model = conv_net(), .shape = S(6, 1, 8, 8), .clips = true, .scaler = tt_grad_scaler_new(8)}),
                     3);
    assert_int_equal(waits_of((training){.model = conv_net(), .shape = S(6, 1, 8, 8), .is_half = true}), 2);
}

/* ---- indices out of range ---- */

static tt_tensor *indices(int64_t a, int64_t b, int64_t c) {
    return there(tt_from_data(((int64_t[]){a, b, c}), S(3), TT_I64));
}

/* An index that is wrong is told by the next call that waits, once; the device goes on. */
static void expect_later(tt_tensor *y, const char *text) {
    if (!y)
        fail_msg("\"%s\" came at once: %s", text, tt_last_error());
    assert_int_equal(tt_device_synchronize(TT_CUDA(0)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, text);
    assert_int_equal(tt_device_synchronize(TT_CUDA(0)), TT_OK);
}

static void wrong_indices_are_told_later(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = there(numbers(3, 4, TT_F32)), *square = tt_view(indices(0, 7, 1), S(3, 1));
    expect_later(tt_index_select(x, 0, indices(2, -1, 9)),
                 "tt_index_select: expected indices in 0..2 (dimension 0 of f32 (3, 4)), got index[1] = -1");
    expect_later(tt_embedding(x, indices(0, 1, 3)), "tt_embedding: expected indices in 0..2 ");
    expect_later(tt_gather_dim(x, 1, square), "tt_gather_dim: expected indices in 0..3 ");
    expect_later(tt_scatter_value(x, 1, square, 5), "got index[1] = 7");
    expect_later(tt_scatter_add(x, 1, square, x), "tt_scatter_add: expected indices in 0..3 ");
    expect_later(tt_one_hot(indices(4, 5, -2), 5), "got index[1] = 5");
    expect_later(tt_cross_entropy(x, indices(0, 4, 5)),
                 "tt_cross_entropy: expected targets in 0..3, got target[1] = 4");
    expect_later(tt_nll_loss(x, indices(0, 1, -1)), "tt_nll_loss: expected targets in 0..3, got target[2] = -1");
    expect_later(tt_cross_entropy(x, indices(0, 4, 5), .label_smoothing = 0.5), "got target[1] = 4");
}

/* The call that waits fails, by the name of the operator that was wrong; of several the first. */
static void a_loss_that_is_read_tells(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    double loss;
    tt_tensor *x = there(numbers(3, 4, TT_F32));
    tt_tensor *l = tt_cross_entropy(tt_embedding(x, indices(0, 1, 3)), indices(9, 9, 9));
    assert_int_equal(tt_item(l, &loss), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID,
                 "tt_embedding: expected indices in 0..2 (dimension 0 of f32 (3, 4)), got index[2] = 3");
    assert_int_equal(tt_item(l, &loss), TT_OK);
}

/* What has a right index is as ever; gradients of the others go nowhere. */
static void wrong_indices_are_passed_over(void **state) {
    (void)state;
    static const int64_t wrong[] = {3, -1, INT64_MAX, INT64_MIN};
    static const float rows[] = {-1.5F, -1.375F, 0, 0, -1.75F, -1.625F}, slopes[] = {0, 0, 1, 1, 1, 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_requires_grad_(tt_detach(there(numbers(3, 2, TT_F32))), true);
        tt_tensor *y = tt_index_select(x, 0, indices(2, wrong[i], 1));
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        expect_later(y, "tt_index_select: expected indices in 0..2 (dimension 0 of f32 (3, 2)), got index[1] = ");
        assert_true(tt_equal(here(y), tt_from_data(rows, S(3, 2), TT_F32)));
        assert_true(tt_equal(here(tt_grad(x)), tt_from_data(slopes, S(3, 2), TT_F32)));
    }
}

/* Rows 2 and 3 lie behind those that may be written. */
static void nothing_is_written_outside(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const char who[] = "a test";
    tt_tensor *all = there(tt_zeros(S(4, 4), TT_F32)), *y = tt_narrow(all, 0, 0, 2),
              *x = there(tt_ones(S(1, 4), TT_F32));
    tt_tensor *places = there(tt_full(S(1, 4), TT_I64, 3)), *place = there(tt_full(S(1), TT_I64, 2));
    assert_false(tt__scatter_out(who, y, x, 0, places) || tt__scatter_add_out(who, y, x, 0, places) ||
                 tt__index_add_out(who, y, x, 0, place));
    assert_true(tt_equal(here(all), tt_zeros(S(4, 4), TT_F32)));
}

/* ---- rows that are to be ignored ---- */

static tt_tensor *loss_of(bool nll, tt_tensor *x, tt_tensor *target, int64_t ignore) {
    return nll ? tt_nll_loss(x, target, .ignore_index = TT_INDEX(ignore))
               : tt_cross_entropy(x, target, .ignore_index = TT_INDEX(ignore));
}

static void ignored_rows_are_the_cpus(void **state) {
    (void)state;
    static const int64_t targets[] = {1, -100, 0, 3, -100, 2, 1};
    for (int f = 0; f < FLOATS; f++)
        for (int kind = 0; kind < 4; kind++) {
            TT_AUTO_SCOPE;
            const int64_t ignore = kind % 2 ? 1 : -100;
            tt_tensor *t = tt_from_data(targets, S(7), TT_I64);
            t = kind % 2 ? tt_masked_fill(t, tt_eq_scalar(t, -100), 1) : t;
            tt_tensor *x = tt_requires_grad_(tt_detach(numbers(7, 4, floats[f])), true);
            tt_tensor *far = tt_requires_grad_(tt_detach(there(x)), true);
            tt_tensor *l = loss_of(kind > 1, x, t, ignore), *far_l = loss_of(kind > 1, far, there(t), ignore);
            expect_close("a loss with ignored rows", floats[f], far_l, l);
            assert_false(tt_backward(l) || tt_backward(far_l));
            expect_close("its gradient", floats[f], tt_grad(far), tt_grad(x));
        }
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_for_its_loss_alone), cmocka_unit_test(clipping_and_a_scaler_read_a_number_each),
        cmocka_unit_test(wrong_indices_are_told_later),    cmocka_unit_test(a_loss_that_is_read_tells),
        cmocka_unit_test(wrong_indices_are_passed_over),   cmocka_unit_test(nothing_is_written_outside),
        cmocka_unit_test(ignored_rows_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
