/* Convolutions and pooling as cases for gradcheck.h; the names are those of tests/vectors/torch-conv.json. */
#ifndef OP_CASES_CONV_H
#define OP_CASES_CONV_H

#include "gradcheck.h"

static tt_tensor *f_conv(tt_tensor *const *in) { return tt_conv2d(in[0], in[1], .bias = in[2]); }
static tt_tensor *f_conv_plain(tt_tensor *const *in) { return tt_conv2d(in[0], in[1]); }
static tt_tensor *f_conv_padded(tt_tensor *const *in) { return tt_conv2d(in[0], in[1], .bias = in[2], .padding = 1); }
static tt_tensor *f_conv_strided(tt_tensor *const *in) {
    return tt_conv2d(in[0], in[1], .bias = in[2], .stride = 2, .padding = 1);
}
static tt_tensor *f_conv_oblong(tt_tensor *const *in) {
    return tt_conv2d(in[0], in[1], .stride_hw = {2, 1}, .padding_hw = {0, 2}, .dilation_hw = {1, 2});
}
static tt_tensor *f_conv_dilated(tt_tensor *const *in) {
    return tt_conv2d(in[0], in[1], .bias = in[2], .dilation = 2, .padding = 2);
}
static tt_tensor *f_conv_groups(tt_tensor *const *in) {
    return tt_conv2d(in[0], in[1], .bias = in[2], .padding = 1, .groups = 2);
}
static tt_tensor *f_conv_depthwise(tt_tensor *const *in) {
    return tt_conv2d(in[0], in[1], .bias = in[2], .stride = 2, .groups = 3);
}

static tt_tensor *f_conv1d(tt_tensor *const *in) {
    return tt_conv1d(in[0], in[1], .bias = in[2], .stride = 2, .padding = 1);
}
static tt_tensor *f_conv1d_groups(tt_tensor *const *in) {
    return tt_conv1d(in[0], in[1], .bias = in[2], .dilation = 2, .groups = 2);
}
static tt_tensor *f_transposed(tt_tensor *const *in) { return tt_conv_transpose2d(in[0], in[1], .bias = in[2]); }
static tt_tensor *f_transposed_strided(tt_tensor *const *in) {
    return tt_conv_transpose2d(in[0], in[1], .bias = in[2], .stride = 2, .padding = 1, .output_padding = 1);
}
static tt_tensor *f_transposed_groups(tt_tensor *const *in) {
    return tt_conv_transpose2d(in[0], in[1], .stride_hw = {2, 1}, .dilation_hw = {1, 2}, .groups = 2);
}

static tt_tensor *f_transposed_beyond(tt_tensor *const *in) {
    return tt_conv_transpose2d(in[0], in[1], .bias = in[2], .dilation_hw = {3, 2}, .output_padding_hw = {2, 1});
}

static tt_tensor *f_max(tt_tensor *const *in) { return tt_max_pool2d(in[0], 2); }
static tt_tensor *f_max_overlapping(tt_tensor *const *in) {
    return tt_max_pool2d(in[0], 3, .stride = 2, .padding = 1, .ceil_mode = true);
}
static tt_tensor *f_max_dilated(tt_tensor *const *in) {
    return tt_max_pool2d(in[0], 0, .kernel_size_hw = {2, 3}, .stride = 1, .padding_hw = {1, 0}, .dilation_hw = {2, 1});
}
static tt_tensor *f_avg(tt_tensor *const *in) { return tt_avg_pool2d(in[0], 2); }
static tt_tensor *f_avg_padded(tt_tensor *const *in) {
    return tt_avg_pool2d(in[0], 3, .stride = 2, .padding = 1, .ceil_mode = true);
}
static tt_tensor *f_avg_inside(tt_tensor *const *in) {
    return tt_avg_pool2d(in[0], 0, .kernel_size_hw = {3, 2}, .stride_hw = {2, 1}, .padding = 1, .ceil_mode = true,
                         .exclude_padding = true);
}
static tt_tensor *f_avg_divided(tt_tensor *const *in) { return tt_avg_pool2d(in[0], 2, .divisor_override = 3); }
static tt_tensor *f_adaptive(tt_tensor *const *in) { return tt_adaptive_avg_pool2d(in[0], 1, 1); }
static tt_tensor *f_adaptive_uneven(tt_tensor *const *in) { return tt_adaptive_avg_pool2d(in[0], 3, 4); }

static const gradcheck_case conv_cases[] = {
    {"conv2d", f_conv, 3, {{4, {2, 3, 5, 4}}, {4, {4, 3, 3, 2}}, {1, {4}}}},
    {"conv2d without bias", f_conv_plain, 2, {{4, {2, 3, 4, 5}}, {4, {2, 3, 2, 3}}}},
    {"conv2d of one channel", f_conv_padded, 3, {{4, {2, 1, 4, 5}}, {4, {3, 1, 3, 3}}, {1, {3}}}},
    {"conv2d to one channel", f_conv, 3, {{4, {1, 3, 4, 4}}, {4, {1, 3, 2, 2}}, {1, {1}}}},
    {"conv2d of one element", f_conv, 3, {{4, {1, 1, 1, 1}}, {4, {1, 1, 1, 1}}, {1, {1}}}},
    {"conv2d 1 x 1", f_conv, 3, {{4, {2, 5, 3, 3}}, {4, {4, 5, 1, 1}}, {1, {4}}}},
    {"conv2d padded", f_conv_padded, 3, {{4, {2, 3, 4, 5}}, {4, {4, 3, 3, 3}}, {1, {4}}}},
    {"conv2d strided", f_conv_strided, 3, {{4, {2, 2, 6, 5}}, {4, {3, 2, 3, 3}}, {1, {3}}}},
    {"conv2d oblong", f_conv_oblong, 2, {{4, {2, 2, 6, 5}}, {4, {3, 2, 3, 2}}}},
    {"conv2d dilated", f_conv_dilated, 3, {{4, {1, 2, 6, 6}}, {4, {2, 2, 3, 3}}, {1, {2}}}},
    {"conv2d groups", f_conv_groups, 3, {{4, {2, 4, 4, 4}}, {4, {6, 2, 3, 3}}, {1, {6}}}},
    {"conv2d depthwise", f_conv_depthwise, 3, {{4, {2, 3, 5, 5}}, {4, {3, 1, 2, 2}}, {1, {3}}}},
    {"conv1d", f_conv1d, 3, {{3, {2, 3, 7}}, {3, {4, 3, 3}}, {1, {4}}}},
    {"conv1d groups", f_conv1d_groups, 3, {{3, {2, 4, 6}}, {3, {6, 2, 2}}, {1, {6}}}},
    {"conv_transpose2d", f_transposed, 3, {{4, {2, 3, 4, 3}}, {4, {3, 4, 2, 3}}, {1, {4}}}},
    {"conv_transpose2d strided", f_transposed_strided, 3, {{4, {2, 3, 4, 3}}, {4, {3, 2, 3, 3}}, {1, {2}}}},
    {"conv_transpose2d groups", f_transposed_groups, 2, {{4, {1, 4, 3, 4}}, {4, {4, 3, 2, 2}}}},
    {"max_pool2d", f_max, 1, {{4, {2, 3, 4, 5}}}},
    {"max_pool2d overlapping", f_max_overlapping, 1, {{4, {2, 3, 6, 5}}}},
    {"max_pool2d dilated", f_max_dilated, 1, {{4, {2, 3, 5, 6}}}},
    {"avg_pool2d", f_avg, 1, {{4, {2, 3, 4, 5}}}},
    {"avg_pool2d padded", f_avg_padded, 1, {{4, {2, 3, 6, 5}}}},
    {"avg_pool2d inside", f_avg_inside, 1, {{4, {2, 3, 6, 5}}}},
    {"avg_pool2d divided", f_avg_divided, 1, {{4, {1, 2, 4, 4}}}},
    {"adaptive_avg_pool2d", f_adaptive, 1, {{4, {2, 3, 4, 5}}}},
    {"adaptive_avg_pool2d uneven", f_adaptive_uneven, 1, {{4, {2, 3, 5, 3}}}},
};

enum { CONV_CASES = sizeof conv_cases / sizeof *conv_cases };

#endif
