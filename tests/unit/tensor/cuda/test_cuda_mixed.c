/* Operators whose tensors lie on two devices: an error that names both, for each operand in turn, and nothing is
 * computed. On the fake of CUDA a kernel would read the host's memory without a crash: the error is what is looked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "unit/autograd/op_cases.h"
#include "unit/autograd/op_cases_conv.h"
#include "unit/autograd/op_cases_index.h"
#include "unit/autograd/op_cases_loss.h"
#include "unit/autograd/op_cases_norm.h"
#include "unit/autograd/op_cases_pointwise.h"
#include "unit/autograd/op_cases_reduction.h"
#include "unit/expect.h"

/* Did a call refuse tensors on two devices? */
static void expect_refused(const char *name, int operand, const char *device, const tt_tensor *y) {
    bool named = strstr(tt_last_error(), "cuda:0") && strstr(tt_last_error(), device);
    if (y || tt_last_status() != TT_ERR_INVALID || !named)
        fail_msg("%s, operand %d on %s: %s%s", name, operand, device, y ? "a result; " : "", tt_last_error());
    tt_clear_error();
}

/* ---- the families' cases: each operand but the first one on another device ---- */

static void check_case(const gradcheck_case *c, const char *device) {
    for (int odd = 1; odd < c->n; odd++) {
        TT_AUTO_SCOPE;
        tt_tensor *in[GRADCHECK_INPUTS] = {NULL};
        for (int k = 0; k < c->n; k++)
            in[k] = gradcheck_tensor(c->shape[k], k, &(gradcheck_kind){k == odd ? device : "cuda:0", TT_F32, TT_F32});
        expect_refused(c->name, odd, device, c->f(in));
    }
}

static const gradcheck_case beyond_cases[] = {
    {"conv_transpose2d", f_transposed_beyond, 2, {{4, {1, 2, 3, 3}}, {4, {2, 2, 3, 3}}}},
};

#define CASES(list) \
    { list, sizeof list / sizeof *list }

static void families_refuse(void **state) {
    (void)state;
    static const struct {
        const gradcheck_case *cases;
        size_t count;
    } families[] = {CASES(op_cases),        CASES(image_cases),  CASES(conv_cases), CASES(index_cases),
                    CASES(loss_cases),      CASES(weight_cases), CASES(norm_cases), CASES(pointwise_cases),
                    CASES(reduction_cases), CASES(beyond_cases)};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (size_t i = 0; i < families[f].count; i++) {
            check_case(&families[f].cases[i], "cpu");
            if (tt_device_count(TT_DEVICE_CUDA) > 1)
                check_case(&families[f].cases[i], "cuda:1");
        }
}

/* ---- operands that are no floats, and calls that are no case ---- */

/* Of x (4,4) on cuda:0, and of what else lies elsewhere: f (4,4), row (4), i (4,4) in 0..3, t (4) in 0..3, mask. */
typedef struct odd_ones {
    tt_tensor *x, *f, *row, *i, *t, *mask;
} odd_ones;

static odd_ones make_odd(const tt_device *device) {
    tt_tensor *t = tt_arange(4), *i = tt_expand(t, S(4, 4));
    return (odd_ones){.x = there(numbers(4, 4, TT_F32)),
                      .f = tt_to_device(numbers(4, 4, TT_F32), device),
                      .row = tt_to_device(tt_ones(S(4), TT_F32), device),
                      .i = tt_to_device(tt_contiguous(i), device),
                      .t = tt_to_device(t, device),
                      .mask = tt_to_device(tt_to(tt_contiguous(i), TT_BOOL), device)};
}

static tt_tensor *here_mask(const odd_ones *o) { return there(here(o->mask)); }
static tt_tensor *here_index(const odd_ones *o) { return there(here(o->i)); }
static tt_tensor *here_targets(const odd_ones *o) { return there(here(o->t)); }

#define CALL(name, expression) \
    static tt_tensor *call_##name(const odd_ones *o) { return expression; }
CALL(add_, tt_add_(o->x, o->f))
CALL(sub_, tt_sub_(o->x, o->f))
CALL(mul_, tt_mul_(o->x, o->f))
CALL(div_, tt_div_(o->x, o->f))
CALL(where_condition, tt_where(o->mask, o->x, o->x))
CALL(where_other, tt_where(here_mask(o), o->x, o->f))
CALL(masked_fill, tt_masked_fill(o->x, o->mask, 1))
CALL(cat, tt_cat((tt_tensor *const[]){o->x, o->f}, 2, 0))
CALL(stack, tt_stack((tt_tensor *const[]){o->x, o->f}, 2, 0))
CALL(index_select, tt_index_select(o->x, 0, o->t))
CALL(gather, tt_gather_dim(o->x, 0, o->i))
CALL(scatter_index, tt_scatter_dim(o->x, 0, o->i, o->x))
CALL(scatter_source, tt_scatter_dim(o->x, 0, here_index(o), o->f))
CALL(scatter_value, tt_scatter_value(o->x, 0, o->i, 1))
CALL(scatter_add_index, tt_scatter_add(o->x, 0, o->i, o->x))
CALL(scatter_add_source, tt_scatter_add(o->x, 0, here_index(o), o->f))
CALL(embedding, tt_embedding(o->x, o->t))
CALL(cross_entropy, tt_cross_entropy(o->x, o->t))
CALL(cross_entropy_weight, tt_cross_entropy(o->x, here_targets(o), .weight = o->row))
CALL(nll_loss, tt_nll_loss(o->x, o->t))
CALL(nll_loss_weight, tt_nll_loss(o->x, here_targets(o), .weight = o->row))
CALL(kl_div, tt_kl_div(o->x, o->f))
CALL(l1_loss, tt_l1_loss(o->x, o->f))
CALL(logits_weight, tt_binary_cross_entropy_with_logits(o->x, o->x, .pos_weight = o->row))
CALL(linear_bias, tt_linear(o->x, o->x, o->row))
CALL(layer_norm_bias, tt_layer_norm(o->x, S(4), .weight = there(here(o->row)), .bias = o->row))
CALL(rms_norm, tt_rms_norm(o->x, S(4), .weight = o->row))
CALL(batch_norm_running, tt_batch_norm(o->x, .running_mean = o->row, .running_var = o->row))
CALL(batch_norm_weight, tt_batch_norm(o->x, .weight = o->row, .training = true))
CALL(attention_mask, tt_scaled_dot_product_attention(o->x, o->x, o->x, .attn_mask = o->f))
CALL(attention_values, tt_scaled_dot_product_attention(o->x, o->x, o->f))

static const struct {
    const char *name;
    tt_tensor *(*call)(const odd_ones *o);
} calls[] = {{"add_", call_add_},
             {"sub_", call_sub_},
             {"mul_", call_mul_},
             {"div_", call_div_},
             {"where, condition", call_where_condition},
             {"where, other", call_where_other},
             {"masked_fill", call_masked_fill},
             {"cat", call_cat},
             {"stack", call_stack},
             {"index_select", call_index_select},
             {"gather", call_gather},
             {"scatter, index", call_scatter_index},
             {"scatter, source", call_scatter_source},
             {"scatter of a value", call_scatter_value},
             {"scatter_add, index", call_scatter_add_index},
             {"scatter_add, source", call_scatter_add_source},
             {"embedding", call_embedding},
             {"cross_entropy", call_cross_entropy},
             {"cross_entropy, weight", call_cross_entropy_weight},
             {"nll_loss", call_nll_loss},
             {"nll_loss, weight", call_nll_loss_weight},
             {"kl_div", call_kl_div},
             {"l1_loss", call_l1_loss},
             {"logits, weight", call_logits_weight},
             {"linear, bias", call_linear_bias},
             {"layer_norm, bias", call_layer_norm_bias},
             {"rms_norm", call_rms_norm},
             {"batch_norm, running", call_batch_norm_running},
             {"batch_norm, weight", call_batch_norm_weight},
             {"attention, mask", call_attention_mask},
             {"attention, values", call_attention_values}};

static void calls_refuse(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        TT_AUTO_SCOPE;
        odd_ones near = make_odd(TT_CPU);
        expect_refused(calls[i].name, 0, "cpu", calls[i].call(&near));
        if (tt_device_count(TT_DEVICE_CUDA) < 2)
            continue;
        odd_ones far = make_odd(TT_CUDA(1));
        expect_refused(calls[i].name, 0, "cuda:1", calls[i].call(&far));
    }
}

/* ---- modules, gradients, optimizers ---- */

static void modules_refuse(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *images = tt_ones(S(2, 3, 5, 5), TT_F32), *rows = tt_ones(S(5, 2, 6), TT_F32);
    const struct {
        const char *name;
        tt_module *module;
        tt_tensor *x;
    } modules[] = {{"linear", tt_nn_linear(6, 4), rows},
                   {"conv2d", tt_nn_conv2d(3, 4, 3), images},
                   {"batch_norm2d", tt_nn_batch_norm2d(3), images},
                   {"layer_norm", tt_nn_layer_norm(S(6)), rows},
                   {"lstm", tt_nn_lstm(6, 4), rows},
                   {"gru", tt_nn_gru(6, 4), rows},
                   {"multihead_attention", tt_nn_multihead_attention(6, 2), rows}};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        assert_int_equal(tt_module_to_device(modules[i].module, TT_CUDA(0)), TT_OK);
        expect_refused(modules[i].name, 0, "cpu", tt_module_forward(modules[i].module, modules[i].x));
        tt_module_free(modules[i].module);
    }
}

static void gradients_refuse(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(there(tt_ones(S(2, 3), TT_F32)), true);
    assert_int_not_equal(tt_backward(tt_scale(x, 2), .gradient = tt_ones(S(2, 3), TT_F32)), TT_OK);
    expect_error(TT_ERR_DTYPE, "expected a gradient f32 on cuda:0, as y, got f32 (2, 3) on cpu");
    assert_int_equal(tt_backward(tt_scale(x, 2), .gradient = there(tt_ones(S(2, 3), TT_F32))), TT_OK);
}

static void optimizers_refuse(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {tt_requires_grad_(there(tt_ones(S(2, 3), TT_F32)), true),
                      tt_requires_grad_(tt_ones(S(2, 3), TT_F32), true)};
    static const char *const names[] = {"far", "near"};
    assert_null(tt_sgd(TT_NAMED_TENSORS(2, names, x), 0.1));
    assert_non_null(strstr(tt_last_error(), "cuda:0"));
    assert_non_null(strstr(tt_last_error(), "cpu"));
    tt_clear_error();
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_refuse),  cmocka_unit_test(calls_refuse),      cmocka_unit_test(modules_refuse),
        cmocka_unit_test(gradients_refuse), cmocka_unit_test(optimizers_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
