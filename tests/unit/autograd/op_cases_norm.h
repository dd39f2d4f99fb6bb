/* Normalisation as cases for gradcheck.h; the names are those of tests/vectors/torch-norm.json. */
#ifndef OP_CASES_NORM_H
#define OP_CASES_NORM_H

#include "gradcheck.h"

static tt_tensor *f_batch(tt_tensor *const *in) {
    return tt_batch_norm(in[0], .weight = in[1], .bias = in[2], .training = true);
}
static tt_tensor *f_batch_plain(tt_tensor *const *in) { return tt_batch_norm(in[0], .training = true, .eps = 1e-3); }
/* Statistics of x's dtype on x's device. */
static tt_tensor *f_batch_given(tt_tensor *const *in) {
    const tt_device *device = tt_tensor_device(in[0]);
    tt_dtype dtype = tt_tensor_dtype(in[0]);
    const float mean[] = {0.25F, -0.5F, 1}, var[] = {0.5F, 2, 1};
    tt_tensor *m = tt_to_device(tt_to(tt_from_data(mean, TT_SHAPE(3), TT_F32), dtype), device);
    tt_tensor *v = tt_to_device(tt_to(tt_from_data(var, TT_SHAPE(3), TT_F32), dtype), device);
    return tt_batch_norm(in[0], .running_mean = m, .running_var = v, .weight = in[1], .bias = in[2]);
}
static tt_tensor *f_layer(tt_tensor *const *in) {
    return tt_layer_norm(in[0], tt_tensor_shape(in[1]), .weight = in[1], .bias = in[2]);
}
static tt_tensor *f_layer_plain(tt_tensor *const *in) { return tt_layer_norm(in[0], TT_SHAPE(5), .eps = 1e-2); }
static tt_tensor *f_group(tt_tensor *const *in) { return tt_group_norm(in[0], 2, .weight = in[1], .bias = in[2]); }
static tt_tensor *f_rms(tt_tensor *const *in) {
    return tt_rms_norm(in[0], tt_tensor_shape(in[1]), .weight = in[1], .eps = 1e-5);
}

static const gradcheck_case norm_cases[] = {
    {"batch_norm", f_batch, 3, {{4, {3, 3, 4, 5}}, {1, {3}}, {1, {3}}}},
    {"batch_norm of rows", f_batch, 3, {{2, {6, 3}}, {1, {3}}, {1, {3}}}},
    {"batch_norm 3-d", f_batch, 3, {{3, {2, 3, 5}}, {1, {3}}, {1, {3}}}},
    {"batch_norm wide", f_batch, 3, {{4, {2, 19, 3, 3}}, {1, {19}}, {1, {19}}}},
    {"batch_norm plain", f_batch_plain, 1, {{4, {2, 3, 4, 5}}}},
    {"batch_norm given", f_batch_given, 3, {{4, {2, 3, 4, 5}}, {1, {3}}, {1, {3}}}},
    {"layer_norm", f_layer, 3, {{2, {4, 19}}, {1, {19}}, {1, {19}}}},
    {"layer_norm of planes", f_layer, 3, {{4, {2, 3, 4, 5}}, {2, {4, 5}}, {2, {4, 5}}}},
    {"layer_norm plain", f_layer_plain, 1, {{3, {2, 3, 5}}}},
    {"group_norm", f_group, 3, {{4, {2, 4, 3, 5}}, {1, {4}}, {1, {4}}}},
    {"group_norm of rows", f_group, 3, {{2, {3, 8}}, {1, {8}}, {1, {8}}}},
    {"rms_norm", f_rms, 2, {{3, {2, 3, 7}}, {1, {7}}}},
};

enum { NORM_CASES = sizeof norm_cases / sizeof *norm_cases };

#endif
