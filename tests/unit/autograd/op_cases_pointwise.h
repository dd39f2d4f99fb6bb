/* Operators that go element by element as cases for gradcheck.h; the names are those of
 * tests/vectors/torch-pointwise.json. */
#ifndef OP_CASES_POINTWISE_H
#define OP_CASES_POINTWISE_H

#include "gradcheck.h"

/* f_exp() and so on: operators of one input, of a line of operators.def each. */
#define UNARY(name, formula, torch, low, high, factor, shift)            \
    static tt_tensor *f_##name(tt_tensor *const *in) {                   \
        return tt_##name(tt_add_scalar(tt_scale(in[0], factor), shift)); \
    }
#include "autograd/operators.def"

/* Inputs lie in -1..1; `above` moves them to where a function is defined. */
static tt_tensor *above(tt_tensor *x) { return tt_add_scalar(x, 1.5); }

static tt_tensor *f_gelu(tt_tensor *const *in) { return tt_gelu(tt_scale(in[0], 3)); }
static tt_tensor *f_gelu_tanh(tt_tensor *const *in) { return tt_gelu(tt_scale(in[0], 3), .tanh = true); }
static tt_tensor *f_leaky_relu(tt_tensor *const *in) { return tt_leaky_relu(in[0], 0.2); }
static tt_tensor *f_clamp(tt_tensor *const *in) { return tt_clamp(in[0], -0.51, 0.33); }
static tt_tensor *f_add_scalar(tt_tensor *const *in) { return tt_add_scalar(in[0], -0.7); }
static tt_tensor *f_pow_2(tt_tensor *const *in) { return tt_pow(in[0], 2); }
static tt_tensor *f_pow_3(tt_tensor *const *in) { return tt_pow(in[0], 3); }
static tt_tensor *f_pow_4(tt_tensor *const *in) { return tt_pow(in[0], 4); }
static tt_tensor *f_pow_half(tt_tensor *const *in) { return tt_pow(above(in[0]), 0.5); }
static tt_tensor *f_pow_below(tt_tensor *const *in) { return tt_pow(above(in[0]), -1.3); }
static tt_tensor *f_pow_0(tt_tensor *const *in) { return tt_pow(in[0], 0); }
static tt_tensor *f_pow_by(tt_tensor *const *in) { return tt_pow_tensor(above(in[0]), tt_scale(in[1], 3)); }
static tt_tensor *f_div(tt_tensor *const *in) { return tt_div(in[0], above(in[1])); }
static tt_tensor *f_maximum(tt_tensor *const *in) { return tt_maximum(in[0], in[1]); }
static tt_tensor *f_minimum(tt_tensor *const *in) { return tt_minimum(in[0], in[1]); }

static tt_tensor *f_where(tt_tensor *const *in) { return tt_where(tt_gt(in[0], in[1]), in[0], in[1]); }
static tt_tensor *f_where_shapes(tt_tensor *const *in) {
    return tt_where(tt_gt_scalar(tt_sum(in[0], .dim = TT_DIMS(1), .keepdim = true), 0), in[0], in[1]);
}
static tt_tensor *f_masked_fill(tt_tensor *const *in) { return tt_masked_fill(in[0], tt_le_scalar(in[0], 0.2), -3); }

static const gradcheck_case pointwise_cases[] = {
#define UNARY(name, ...) {#name, f_##name, 1, {{2, {5, 7}}}},
#include "autograd/operators.def"
    {"gelu", f_gelu, 1, {{2, {5, 7}}}},
    {"gelu tanh", f_gelu_tanh, 1, {{2, {5, 7}}}},
    {"leaky_relu", f_leaky_relu, 1, {{2, {5, 7}}}},
    {"clamp", f_clamp, 1, {{2, {5, 7}}}},
    {"add_scalar", f_add_scalar, 1, {{2, {5, 7}}}},
    {"pow 2", f_pow_2, 1, {{2, {5, 7}}}},
    {"pow 3", f_pow_3, 1, {{2, {5, 7}}}},
    {"pow 4", f_pow_4, 1, {{2, {5, 7}}}},
    {"pow half", f_pow_half, 1, {{2, {5, 7}}}},
    {"pow below 0", f_pow_below, 1, {{2, {5, 7}}}},
    {"pow 0", f_pow_0, 1, {{2, {5, 7}}}},
    {"pow tensor", f_pow_by, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"pow tensor outer", f_pow_by, 2, {{2, {5, 1}}, {3, {2, 1, 3}}}},
    {"div", f_div, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"div by rows", f_div, 2, {{2, {5, 7}}, {2, {5, 1}}}},
    {"div outer", f_div, 2, {{2, {5, 1}}, {3, {2, 1, 3}}}},
    {"maximum", f_maximum, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"maximum by columns", f_maximum, 2, {{2, {3, 4}}, {1, {4}}}},
    {"minimum", f_minimum, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"minimum outer", f_minimum, 2, {{2, {3, 1}}, {2, {1, 4}}}},
    {"exp of a scalar", f_exp, 1, {{0, {0}}}},
    {"gelu of an image", f_gelu, 1, {{4, {2, 3, 4, 5}}}},
    {"div of an image", f_div, 2, {{4, {2, 3, 4, 5}}, {4, {1, 3, 1, 1}}}},
    {"where", f_where, 2, {{2, {5, 7}}, {2, {5, 7}}}},
    {"where broadcast", f_where_shapes, 2, {{2, {5, 7}}, {1, {7}}}},
    {"masked_fill", f_masked_fill, 1, {{2, {5, 7}}}},
};

#endif
