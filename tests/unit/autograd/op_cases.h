/* Every operator as a case for gradcheck.h; the names are those of tests/vectors/torch-ops.json. */
#ifndef OP_CASES_H
#define OP_CASES_H

#include "gradcheck.h"

static tt_tensor *f_add(tt_tensor *const *in) { return tt_add(in[0], in[1]); }
static tt_tensor *f_sub(tt_tensor *const *in) { return tt_sub(in[0], in[1]); }
static tt_tensor *f_mul(tt_tensor *const *in) { return tt_mul(in[0], in[1]); }
static tt_tensor *f_square(tt_tensor *const *in) { return tt_mul(in[0], in[0]); }
static tt_tensor *f_scale(tt_tensor *const *in) { return tt_scale(in[0], -2.5); }
static tt_tensor *f_mean(tt_tensor *const *in) { return tt_mean(in[0]); }
static tt_tensor *f_sum(tt_tensor *const *in) { return tt_sum(in[0]); }
static tt_tensor *f_matmul(tt_tensor *const *in) { return tt_matmul(in[0], in[1]); }
static tt_tensor *f_linear(tt_tensor *const *in) { return tt_linear(in[0], in[1], in[2]); }
static tt_tensor *f_linear_plain(tt_tensor *const *in) { return tt_linear(in[0], in[1], NULL); }
static tt_tensor *f_relu(tt_tensor *const *in) { return tt_relu(in[0]); }
static tt_tensor *f_log_softmax(tt_tensor *const *in) { return tt_log_softmax(in[0], -1); }
static tt_tensor *f_log_softmax_0(tt_tensor *const *in) { return tt_log_softmax(in[0], 0); }
static tt_tensor *f_log_softmax_1(tt_tensor *const *in) { return tt_log_softmax(in[0], 1); }
static tt_tensor *targets(const tt_tensor *x) {
    tt_tensor *t = tt_arange(tt_tensor_size(x, 0));
    for (int64_t i = 0; i < tt_tensor_size(x, 0); i++)
        tt_tensor_i64(t)[i] = i * 3 % tt_tensor_size(x, 1);
    return tt_to_device(t, tt_tensor_device(x));
}
static tt_tensor *f_nll(tt_tensor *const *in) { return tt_nll_loss(in[0], targets(in[0])); }
static tt_tensor *f_ce(tt_tensor *const *in) { return tt_cross_entropy(in[0], targets(in[0])); }
static tt_tensor *f_mse(tt_tensor *const *in) { return tt_mse_loss(in[0], in[1]); }
static tt_tensor *f_view(tt_tensor *const *in) { return tt_view(tt_contiguous(in[0]), TT_SHAPE(2, -1)); }
static tt_tensor *f_reshape(tt_tensor *const *in) { return tt_reshape(in[0], TT_SHAPE(-1)); }
static tt_tensor *f_flatten(tt_tensor *const *in) { return tt_flatten(in[0], 1); }
static tt_tensor *f_transpose(tt_tensor *const *in) { return tt_transpose(in[0], 0, -1); }
static tt_tensor *f_narrow(tt_tensor *const *in) {
    return tt_add(tt_narrow(in[0], 1, 1, 2), tt_narrow(in[0], 1, 2, 2));
}
static tt_tensor *f_clone(tt_tensor *const *in) { return tt_clone(in[0]); }
static tt_tensor *f_to(tt_tensor *const *in) { return tt_to(in[0], tt_tensor_dtype(in[0])); }

static const gradcheck_case op_cases[] = {
    {"add", f_add, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"add broadcast", f_add, 2, {{2, {3, 4}}, {1, {4}}}},
    {"add outer", f_add, 2, {{2, {3, 1}}, {2, {1, 4}}}},
    {"add scalar", f_add, 2, {{0, {0}}, {3, {2, 3, 2}}}},
    {"sub", f_sub, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"sub broadcast", f_sub, 2, {{3, {2, 1, 4}}, {2, {3, 1}}}},
    {"mul", f_mul, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"mul broadcast", f_mul, 2, {{2, {5, 1}}, {3, {2, 1, 3}}}},
    {"mul by itself", f_square, 1, {{2, {3, 4}}}},
    {"scale", f_scale, 1, {{2, {5, 7}}}},
    {"mean", f_mean, 1, {{3, {2, 3, 4}}}},
    {"sum", f_sum, 1, {{2, {9, 5}}}},
    {"matmul", f_matmul, 2, {{2, {3, 5}}, {2, {5, 4}}}},
    {"matmul row", f_matmul, 2, {{2, {1, 5}}, {2, {5, 1}}}},
    {"linear", f_linear, 3, {{2, {4, 5}}, {2, {3, 5}}, {1, {3}}}},
    {"linear 1-d", f_linear, 3, {{1, {5}}, {2, {3, 5}}, {1, {3}}}},
    {"linear 3-d", f_linear, 3, {{3, {2, 3, 5}}, {2, {4, 5}}, {1, {4}}}},
    {"linear to one", f_linear, 3, {{2, {3, 1}}, {2, {1, 1}}, {1, {1}}}},
    {"linear without bias", f_linear_plain, 2, {{2, {4, 5}}, {2, {3, 5}}}},
    {"relu", f_relu, 1, {{2, {6, 7}}}},
    {"log_softmax", f_log_softmax, 1, {{2, {4, 19}}}},
    {"log_softmax dim 0", f_log_softmax_0, 1, {{2, {4, 5}}}},
    {"log_softmax dim 1 of 3", f_log_softmax_1, 1, {{3, {2, 5, 3}}}},
    {"nll_loss", f_nll, 1, {{2, {4, 5}}}},
    {"cross_entropy", f_ce, 1, {{2, {4, 5}}}},
    {"cross_entropy wide", f_ce, 1, {{2, {2, 35}}}},
    {"mse_loss", f_mse, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"view", f_view, 1, {{2, {4, 3}}}},
    {"reshape", f_reshape, 1, {{3, {2, 3, 2}}}},
    {"flatten", f_flatten, 1, {{3, {2, 3, 2}}}},
    {"transpose", f_transpose, 1, {{3, {2, 3, 4}}}},
    {"narrow", f_narrow, 1, {{2, {3, 5}}}},
    {"clone", f_clone, 1, {{2, {3, 5}}}},
    {"to", f_to, 1, {{2, {3, 5}}}},
};

enum { OP_CASES = sizeof op_cases / sizeof *op_cases };

/* Images, (N, C, H, W), for those that know nothing of dimensions or of which it is one. */
static const gradcheck_case image_cases[] = {
    {"add", f_add, 2, {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}}},
    {"add to channels", f_add, 2, {{4, {2, 3, 4, 5}}, {4, {1, 3, 1, 1}}}},
    {"add to columns", f_add, 2, {{4, {2, 3, 4, 5}}, {1, {5}}}},
    {"sub", f_sub, 2, {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}}},
    {"sub from channels", f_sub, 2, {{3, {3, 1, 1}}, {4, {2, 3, 4, 5}}}},
    {"mul", f_mul, 2, {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}}},
    {"mul channels", f_mul, 2, {{4, {2, 3, 4, 5}}, {4, {1, 3, 1, 1}}}},
    {"mul by itself", f_square, 1, {{4, {2, 3, 4, 5}}}},
    {"scale", f_scale, 1, {{4, {2, 3, 4, 5}}}},
    {"relu", f_relu, 1, {{4, {2, 3, 4, 5}}}},
    {"log_softmax of channels", f_log_softmax_1, 1, {{4, {2, 3, 4, 5}}}},
    {"log_softmax of columns", f_log_softmax, 1, {{4, {2, 3, 4, 5}}}},
    {"clone", f_clone, 1, {{4, {2, 3, 4, 5}}}},
    {"to", f_to, 1, {{4, {2, 3, 4, 5}}}},
    /* from here on the result has another shape */
    {"mean", f_mean, 1, {{4, {2, 3, 4, 5}}}},
    {"sum", f_sum, 1, {{4, {2, 3, 4, 5}}}},
    {"linear", f_linear, 3, {{4, {2, 3, 4, 5}}, {2, {6, 5}}, {1, {6}}}},
    {"mse_loss", f_mse, 2, {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}}},
    {"reshape", f_reshape, 1, {{4, {2, 3, 4, 5}}}},
    {"flatten", f_flatten, 1, {{4, {2, 3, 4, 5}}}},
    {"transpose", f_transpose, 1, {{4, {2, 3, 4, 5}}}},
    {"narrow", f_narrow, 1, {{4, {2, 5, 4, 5}}}},
};

enum { IMAGE_CASES = sizeof image_cases / sizeof *image_cases, IMAGE_CASES_LIKE_INPUT = 14 };

#endif
