/* Memory runs out in every operator that goes element by element, reduces, is a loss, drops or works in place: each
 * allocation fails once. Every round ends with TT_ERR_MEMORY and with as much memory in use as before. Steps that have
 * run allocate nothing, and operators used without a scope leave nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/nn.h>

#include "unit/alloc_fail.h"

typedef tt_tensor *(*operator_of_one)(tt_tensor *x);

/* ---- x (2, 2), with gaps */

static tt_tensor *exp_log(tt_tensor *x) { return tt_log(tt_exp(x)); }
static tt_tensor *activations(tt_tensor *x) { return tt_gelu(tt_silu(tt_leaky_relu(tt_clamp(x, -1, 1), 0.1))); }
static tt_tensor *pow_3(tt_tensor *x) { return tt_pow(x, 3); }
static tt_tensor *quotient(tt_tensor *x) { return tt_div(x, tt_maximum(x, tt_sum(x, .dim = TT_DIMS(0)))); }
static tt_tensor *moments(tt_tensor *x) { return tt_add(tt_mean(x, .dim = TT_DIMS(0)), tt_var(x, 1)); }
static tt_tensor *norms(tt_tensor *x) { return tt_add(tt_norm(x, 2, .dim = TT_DIMS(1)), tt_norm(x, INFINITY)); }
static tt_tensor *extremes(tt_tensor *x) { return tt_add(tt_max(x), tt_min(x, .dim = TT_DIMS(0))); }
static tt_tensor *values(tt_tensor *x) { return tt_pow_tensor(tt_amax(x, .dim = TT_DIMS(0)), tt_amin(x)); }
static tt_tensor *softmax(tt_tensor *x) { return tt_softmax(x, 0); }
static tt_tensor *chosen(tt_tensor *x) { return tt_where(tt_gt_scalar(x, 0), x, tt_masked_fill(x, tt_eq(x, x), 2)); }
static tt_tensor *truth(tt_tensor *x) { return tt_all(tt_any(x, .dim = TT_DIMS(1))); }
static tt_tensor *dropped(tt_tensor *x) { return tt_dropout(x, 0.5, true); }
static tt_tensor *in_place(tt_tensor *x) { return tt_relu_(tt_div_(tt_mul_(tt_add_(tt_clone(x), x), x), x)); }
static tt_tensor *filled(tt_tensor *x) { return tt_sub_(tt_fill_(tt_scale_(tt_clone(x), 2), 1), x); }
static tt_tensor *pair_losses(tt_tensor *x) {
    return tt_add(tt_l1_loss(x, x), tt_kl_div(x, x, .reduction = TT_REDUCTION_BATCHMEAN));
}
static tt_tensor *logit_loss(tt_tensor *x) {
    return tt_binary_cross_entropy_with_logits(x, x, .weight = x, .pos_weight = x);
}
static tt_tensor *class_loss(tt_tensor *x) {
    return tt_cross_entropy(x, tt_from_data(((int64_t[]){-100, 1}), TT_SHAPE(2), TT_I64), .label_smoothing = 0.1);
}

static tt_tensor *class_loss_of_images(tt_tensor *x) {
    tt_tensor *t = tt_zeros(TT_SHAPE(1, 2), TT_I64), *image = tt_view(tt_contiguous(x), TT_SHAPE(1, 2, 2));
    return tt_nll_loss(image, t);
}

static const operator_of_one combined[] = {
    exp_log, activations, pow_3,   quotient, moments,     norms,    extremes,   values,     softmax,
    chosen,  truth,       dropped, filled,   pair_losses, in_place, logit_loss, class_loss, class_loss_of_images};

static tt_status use_in_a_scope(operator_of_one f) {
    TT_AUTO_SCOPE;
    tt_tensor *leaf = tt_requires_grad_(tt_ones(TT_SHAPE(3, 3), TT_F32), true);
    tt_tensor *y = f(tt_narrow(tt_narrow(leaf, 1, 0, 2), 0, 0, 2));
    return y && !tt_requires_grad(y) ? TT_OK : tt_backward(y ? tt_sum(y) : NULL);
}

static tt_status program(void *arg) {
    (void)arg;
    tt_status status = TT_OK;
    for (size_t i = 0; i < sizeof combined / sizeof *combined && !status; i++)
        status = use_in_a_scope(combined[i]);
    tt_module *model = tt_nn_sequential(tt_nn_dropout(0.5), tt_nn_softmax(1), tt_nn_leaky_relu(0.1));
    status = status ? status : model ? TT_OK : tt_last_status();
    tt_module_free(model);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_in_range(alloc_fail_each(program, NULL, ALLOC_ENDS), 20, 1000); /* there was something to fail */
}

/* A step that has run before allocates nothing. */
static void steady_steps_allocate_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (size_t i = 0; i < sizeof combined / sizeof *combined; i++) {
        for (int warm = 0; warm < 2; warm++)
            assert_int_equal(use_in_a_scope(combined[i]), TT_OK);
        long before = alloc_count_own;
        assert_int_equal(use_in_a_scope(combined[i]), TT_OK);
        if (alloc_count_own != before)
            fail_msg("operator number %zu allocates %ld times", i, alloc_count_own - before);
    }
}

/* ---- without a scope: one operator each */

static tt_tensor *gelu(tt_tensor *x) { return tt_gelu(x); }
static tt_tensor *div_self(tt_tensor *x) { return tt_div(x, x); }
static tt_tensor *sum_rows(tt_tensor *x) { return tt_sum(x, .dim = TT_DIMS(1)); }
static tt_tensor *var(tt_tensor *x) { return tt_var(x, 1); }
static tt_tensor *norm(tt_tensor *x) { return tt_norm(x, 3); }
static tt_tensor *max_all(tt_tensor *x) { return tt_max(x); }
static tt_tensor *max_rows(tt_tensor *x) { return tt_max(x, .dim = TT_DIMS(0)); }
static tt_tensor *amax_columns(tt_tensor *x) { return tt_amax(x, .dim = TT_DIMS(0)); }
static tt_tensor *any(tt_tensor *x) { return tt_any(x); }
static tt_tensor *compared(tt_tensor *x) { return tt_lt_scalar(x, 1); }
static tt_tensor *l1(tt_tensor *x) { return tt_l1_loss(x, x); }
static tt_tensor *mse_sum(tt_tensor *x) { return tt_mse_loss(x, x, .reduction = TT_REDUCTION_SUM); }
static tt_tensor *kl(tt_tensor *x) { return tt_kl_div(x, x, .reduction = TT_REDUCTION_BATCHMEAN); }

static const operator_of_one single[] = {gelu,     div_self,     sum_rows, var,        norm, max_all,
                                         max_rows, amax_columns, any,      compared,   l1,   mse_sum,
                                         kl,       dropped,      softmax,  logit_loss, pow_3};

static void use_without_a_scope(operator_of_one f) {
    tt_tensor *base = tt_ones(TT_SHAPE(3, 3), TT_F32), *leaf = tt_requires_grad_(base, true);
    tt_tensor *part = tt_narrow(leaf, 1, 0, 2), *x = tt_narrow(part, 0, 0, 2);
    tt_tensor *y = f(x), *loss = y && tt_requires_grad(y) ? tt_sum(y) : NULL;
    tt_tensor_free(x);
    tt_tensor_free(part);
    if (loss)
        assert_int_equal(tt_backward(loss), TT_OK);
    tt_tensor_free(loss);
    tt_tensor_free(y);
    tt_tensor_free(leaf);
}

static void the_caller_owns_results_only(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        use_without_a_scope(single[i]); /* what is made once stays */
        long before = alloc_in_use();
        use_without_a_scope(single[i]);
        if (alloc_in_use() != before)
            fail_msg("operator number %zu leaves %ld blocks", i, alloc_in_use() - before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(steady_steps_allocate_nothing),
        cmocka_unit_test(the_caller_owns_results_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
