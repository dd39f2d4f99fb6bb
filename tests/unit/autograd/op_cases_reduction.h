/* Reductions and softmax as cases for gradcheck.h; the names are those of tests/vectors/torch-reduction.json. */
#ifndef OP_CASES_REDUCTION_H
#define OP_CASES_REDUCTION_H

#include "gradcheck.h"

static tt_tensor *f_sum_1(tt_tensor *const *in) { return tt_sum(in[0], .dim = TT_DIMS(1)); }
static tt_tensor *f_sum_0_2(tt_tensor *const *in) { return tt_sum(in[0], .dim = TT_DIMS(0, -1)); }
static tt_tensor *f_sum_keep(tt_tensor *const *in) { return tt_sum(in[0], .dim = TT_DIMS(-2), .keepdim = true); }
static tt_tensor *f_mean_0(tt_tensor *const *in) { return tt_mean(in[0], .dim = TT_DIMS(0)); }
static tt_tensor *f_mean_last(tt_tensor *const *in) { return tt_mean(in[0], .dim = TT_DIMS(-1), .keepdim = true); }
static tt_tensor *f_mean_keep(tt_tensor *const *in) { return tt_mean(in[0], .keepdim = true); }
static tt_tensor *f_var(tt_tensor *const *in) { return tt_var(in[0], 1); }
static tt_tensor *f_var_0(tt_tensor *const *in) { return tt_var(in[0], 0, .dim = TT_DIMS(0, 2), .keepdim = true); }
static tt_tensor *f_var_last(tt_tensor *const *in) { return tt_var(in[0], 1, .dim = TT_DIMS(-1)); }
static tt_tensor *f_norm_2(tt_tensor *const *in) { return tt_norm(in[0], 2); }
static tt_tensor *f_norm_1(tt_tensor *const *in) { return tt_norm(in[0], 1, .dim = TT_DIMS(0)); }
static tt_tensor *f_norm_3(tt_tensor *const *in) { return tt_norm(in[0], 3, .dim = TT_DIMS(1), .keepdim = true); }
static tt_tensor *f_norm_inf(tt_tensor *const *in) { return tt_norm(in[0], INFINITY, .dim = TT_DIMS(-1)); }
static tt_tensor *f_max_all(tt_tensor *const *in) { return tt_max(in[0]); }
static tt_tensor *f_max_0(tt_tensor *const *in) { return tt_max(in[0], .dim = TT_DIMS(0)); }
static tt_tensor *f_min_1(tt_tensor *const *in) { return tt_min(in[0], .dim = TT_DIMS(1), .keepdim = true); }
static tt_tensor *f_min_last(tt_tensor *const *in) { return tt_min(in[0], .dim = TT_DIMS(-1)); }
static tt_tensor *f_amax(tt_tensor *const *in) { return tt_amax(in[0], .dim = TT_DIMS(0, -1)); }
static tt_tensor *f_amax_1(tt_tensor *const *in) { return tt_amax(in[0], .dim = TT_DIMS(1)); }
static tt_tensor *f_amin(tt_tensor *const *in) { return tt_amin(in[0], .dim = TT_DIMS(2, 1), .keepdim = true); }
static tt_tensor *f_softmax(tt_tensor *const *in) { return tt_softmax(in[0], -1); }
static tt_tensor *f_softmax_0(tt_tensor *const *in) { return tt_softmax(in[0], 0); }
static tt_tensor *f_softmax_1(tt_tensor *const *in) { return tt_softmax(in[0], 1); }

static const gradcheck_case reduction_cases[] = {
    {"sum dim 1", f_sum_1, 1, {{2, {3, 4}}}},
    {"sum dims 0 2", f_sum_0_2, 1, {{3, {2, 3, 4}}}},
    {"sum keepdim", f_sum_keep, 1, {{3, {2, 3, 4}}}},
    {"mean dim 0", f_mean_0, 1, {{2, {5, 7}}}},
    {"mean last keepdim", f_mean_last, 1, {{3, {2, 3, 7}}}},
    {"mean keepdim", f_mean_keep, 1, {{2, {5, 7}}}},
    {"var", f_var, 1, {{2, {5, 7}}}},
    {"var dims 0 2", f_var_0, 1, {{3, {2, 3, 4}}}},
    {"var last", f_var_last, 1, {{2, {3, 19}}}},
    {"norm 2", f_norm_2, 1, {{2, {5, 7}}}},
    {"norm 1", f_norm_1, 1, {{2, {5, 7}}}},
    {"norm 3", f_norm_3, 1, {{3, {2, 3, 4}}}},
    {"norm inf", f_norm_inf, 1, {{2, {5, 7}}}},
    {"max", f_max_all, 1, {{2, {5, 7}}}},
    {"max dim 0", f_max_0, 1, {{2, {5, 7}}}},
    {"min dim 1", f_min_1, 1, {{3, {2, 3, 4}}}},
    {"min last", f_min_last, 1, {{2, {5, 7}}}},
    {"amax dims 0 2", f_amax, 1, {{3, {2, 3, 4}}}},
    {"amax dim 1", f_amax_1, 1, {{2, {5, 7}}}},
    {"amax of an image", f_amax, 1, {{4, {2, 3, 4, 5}}}},
    {"amin dims 1 2", f_amin, 1, {{3, {2, 3, 4}}}},
    {"softmax", f_softmax, 1, {{2, {4, 19}}}},
    {"softmax dim 0", f_softmax_0, 1, {{2, {4, 5}}}},
    {"softmax dim 1 of 3", f_softmax_1, 1, {{3, {2, 5, 3}}}},
    {"softmax of channels", f_softmax_1, 1, {{4, {2, 3, 4, 5}}}},
    {"sum of channels", f_sum_1, 1, {{4, {2, 3, 4, 5}}}},
};

#endif
