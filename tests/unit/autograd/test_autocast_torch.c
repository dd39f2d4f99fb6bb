/* Autocast beside torch.autocast("cpu", dtype=torch.bfloat16): types, and losses and gradients within bf16's rounding.
 * make_torch_autocast.py computes the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gradcheck.h"
#include "unit/vectors.h"

#include <tutti/functional.h>

#include <math.h>
#include <string.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

/* ---- types */

static tt_tensor *of(tt_shape shape, tt_dtype dtype) { return tt_to(tt_full(shape, TT_F32, 0.5), dtype); }

#define IMAGE(d) of(S(2, 3, 6, 6), d)
#define ROWS(d) of(S(3, 4), d)
#define VECTOR(d) of(S(4), d)

static tt_tensor *classes(void) { return tt_from_data(((int64_t[]){0, 2, 1}), S(3), TT_I64); }

static tt_tensor *joined(tt_dtype d, bool stack) {
    tt_tensor *both[] = {ROWS(d), ROWS(TT_F32)};
    return stack ? tt_stack(both, 2, 0) : tt_cat(both, 2, 0);
}

#define EXPRESSIONS(X)                                                                      \
    X(linear, tt_linear(ROWS(d), ROWS(TT_F32), of(S(3), TT_F32)))                           \
    X(matmul, tt_matmul(ROWS(d), of(S(4, 5), TT_F32)))                                      \
    X(bmm, tt_bmm(of(S(2, 3, 4), d), of(S(2, 4, 5), TT_F32)))                               \
    X(conv1d, tt_conv1d(of(S(2, 3, 8), d), of(S(4, 3, 3), TT_F32), .bias = VECTOR(TT_F32))) \
    X(conv2d, tt_conv2d(IMAGE(d), of(S(4, 3, 3, 3), TT_F32), .bias = VECTOR(TT_F32)))       \
    X(cross_entropy, tt_cross_entropy(ROWS(d), classes(), .weight = VECTOR(TT_F32)))        \
    X(nll_loss, tt_nll_loss(ROWS(d), classes()))                                            \
    X(mse_loss, tt_mse_loss(ROWS(d), ROWS(TT_F32)))                                         \
    X(l1_loss, tt_l1_loss(ROWS(d), ROWS(d)))                                                \
    X(smooth_l1_loss, tt_smooth_l1_loss(ROWS(d), ROWS(d), 1))                               \
    X(kl_div, tt_kl_div(ROWS(d), ROWS(d)))                                                  \
    X(add, tt_add(ROWS(d), VECTOR(TT_F32)))                                                 \
    X(sub, tt_sub(ROWS(d), ROWS(TT_F32)))                                                   \
    X(mul, tt_mul(ROWS(TT_F32), ROWS(d)))                                                   \
    X(div, tt_div(ROWS(d), ROWS(TT_F32)))                                                   \
    X(maximum, tt_maximum(ROWS(d), ROWS(TT_F32)))                                           \
    X(cat, joined(d, false))                                                                \
    X(stack, joined(d, true))                                                               \
    X(add_alike, tt_add(ROWS(d), ROWS(d)))                                                  \
    X(relu, tt_relu(ROWS(d)))                                                               \
    X(gelu, tt_gelu(ROWS(d)))                                                               \
    X(exp, tt_exp(ROWS(d)))                                                                 \
    X(sum, tt_sum(ROWS(d)))                                                                 \
    X(softmax, tt_softmax(ROWS(d), 1))                                                      \
    X(max_pool2d, tt_max_pool2d(IMAGE(d), 2))

#define FUNCTION(name, expression) \
    static tt_tensor *make_##name(tt_dtype d) { return expression; }
EXPRESSIONS(FUNCTION)
#undef FUNCTION

static const struct {
    const char *name;
    tt_tensor *(*make)(tt_dtype d);
} expressions[] = {
#define EXPRESSION(name, expression) {#name, make_##name},
    EXPRESSIONS(EXPRESSION)
#undef EXPRESSION
};

static void types_are_pytorchs(void **state) {
    const json_t *types = json_object_get(*state, "types");
    assert_int_equal(json_object_size(types), sizeof expressions / sizeof *expressions);
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++)
        for (int wide = 0; wide < 2; wide++) {
            TT_AUTO_SCOPE;
            TT_AUTOCAST(TT_BF16);
            const json_t *both = json_object_get(types, expressions[i].name);
            const char *expected = json_string_value(json_array_get(both, (size_t)wide));
            const tt_tensor *y = expressions[i].make(wide ? TT_F32 : TT_BF16);
            if (!y || !expected || strcmp(tt_dtype_name(tt_tensor_dtype(y)), expected) != 0)
                fail_msg("%s: expected %s, got %s", expressions[i].name, expected ? expected : "?",
                         y ? tt_dtype_name(tt_tensor_dtype(y)) : tt_last_error());
        }
}

/* ---- results */

static tt_tensor *mlp(tt_tensor *const *in) {
    tt_tensor *y = tt_linear(tt_gelu(tt_linear(in[0], in[1], in[2])), in[3], NULL);
    return tt_mse_loss(y, tt_zeros(S(8, 5), TT_F32));
}

static tt_tensor *convnet(tt_tensor *const *in) {
    tt_tensor *h = tt_relu(tt_conv2d(in[0], in[1], .bias = in[2], .padding = 1));
    tt_tensor *target = tt_from_data(((int64_t[]){0, 2}), S(2), TT_I64);
    return tt_cross_entropy(tt_linear(tt_reshape(h, S(2, 100)), in[3], NULL), target);
}

static tt_tensor *products(tt_tensor *const *in) {
    tt_tensor *y = tt_matmul(in[0], tt_bmm(in[1], in[0]));
    return tt_mse_loss(y, tt_zeros(S(2, 4, 6), TT_F32));
}

static const struct {
    const char *name;
    tt_tensor *(*loss)(tt_tensor *const *in);
    int n;
    tt_shape shape[4];
} nets[] = {
    {"mlp", mlp, 4, {{2, {8, 6}}, {2, {16, 6}}, {1, {16}}, {2, {5, 16}}}},
    {"convnet", convnet, 4, {{4, {2, 3, 5, 5}}, {4, {4, 3, 3, 3}}, {1, {4}}, {2, {3, 100}}}},
    {"products", products, 2, {{3, {2, 4, 6}}, {3, {2, 6, 4}}}},
};

/* How far from f32's results may ours be? Twice as far as PyTorch's, or two roundings of bf16. */
static void check_distance(const char *net, const char *what, double ours, double torchs, double largest) {
    if (!(ours <= fmax(2 * torchs, largest / 128)))
        fail_msg("%s: %s is %g from f32's of at most %g; PyTorch's %g", net, what, ours, largest, torchs);
}

static void compare_grad(const char *net, int k, tt_tensor *x, const json_t *low, const json_t *wide) {
    double largest = 0, ours = 0, torchs = 0;
    char what[32];
    const float *grad = tt_tensor_f32(tt_grad(x));
    assert_int_equal(json_array_size(wide), tt_tensor_numel(x));
    for (size_t i = 0; i < json_array_size(wide); i++) {
        double exact = vectors_number(wide, i);
        largest = fmax(largest, fabs(exact));
        ours = fmax(ours, fabs((double)grad[i] - exact));
        torchs = fmax(torchs, fabs(vectors_number(low, i) - exact));
    }
    snprintf(what, sizeof what, "the gradient of input %d", k);
    check_distance(net, what, ours, torchs, largest);
}

static const json_t *grad_vectors(const json_t *net, const char *type, int k) {
    return json_array_get(json_object_get(json_object_get(net, type), "grads"), (size_t)k);
}

static void results_are_within_bf16s_rounding(void **state) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        TT_AUTO_SCOPE;
        const json_t *expected = json_object_get(json_object_get(*state, "nets"), nets[i].name);
        tt_tensor *in[4];
        double loss;
        for (int k = 0; k < nets[i].n; k++) {
            in[k] = tt_empty(nets[i].shape[k], TT_F32);
            for (int64_t e = 0; e < tt_tensor_numel(in[k]); e++)
                tt_tensor_f32(in[k])[e] = (float)gradcheck_value(k, e);
            tt_requires_grad_(in[k], true);
        }
        int before = tt_autocast_begin(TT_BF16);
        tt_tensor *y = nets[i].loss(in);
        tt_autocast_end(before);
        assert_int_equal(tt_item(y, &loss), TT_OK);
        double exact = vectors_member(json_object_get(expected, "f32"), "loss");
        double torchs = fabs(vectors_member(json_object_get(expected, "bf16"), "loss") - exact);
        check_distance(nets[i].name, "the loss", fabs(loss - exact), torchs, fabs(exact));
        assert_int_equal(tt_backward(y), TT_OK);
        for (int k = 0; k < nets[i].n; k++)
            compare_grad(nets[i].name, k, in[k], grad_vectors(expected, "bf16", k), grad_vectors(expected, "f32", k));
    }
}

static int load(void **state) { return (*state = vectors_load("torch-autocast.json")) ? 0 : -1; }

static int unload(void **state) {
    json_decref(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_pytorchs),
        cmocka_unit_test(results_are_within_bf16s_rounding),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
