/* The device "cpu": a table of the kernels that are faster than the plain loops, which do the rest. */
#include "tensor/cpu/cpu_kernels.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/onednn/onednn.h"

static const tt__kernels f32 = {
    .fill = tt__cpu_fill,
    .copy = tt__cpu_copy,
    .convert = tt__cpu_convert,
    .add = tt__cpu_add_f32,
    .sub = tt__cpu_sub_f32,
    .mul = tt__cpu_mul_f32,
    .scale = tt__cpu_scale_f32,
    .relu = tt__cpu_relu_f32,
    .relu_backward = tt__cpu_relu_backward_f32,
    .dropout = tt__cpu_dropout_f32,
    .unary = tt__cpu_unary_f32,
    .unary_backward = tt__cpu_unary_backward_f32,
    .binary = tt__cpu_binary_f32,
    .binary_backward = tt__cpu_binary_backward_f32,
    .sum = tt__cpu_sum_f32,
    .matmul = tt__onednn_matmul_f32,
    .conv2d = tt__onednn_conv2d,
    .conv2d_backward_data = tt__onednn_conv2d_backward_data,
    .conv2d_backward_weight = tt__onednn_conv2d_backward_weight,
    .max_pool2d = tt__cpu_max_pool2d_f32,
    .max_pool2d_backward = tt__cpu_max_pool2d_backward_f32,
    .softmax = tt__cpu_softmax_f32,
    .softmax_backward = tt__cpu_softmax_backward_f32,
    .batch_norm_stats = tt__cpu_batch_norm_stats_f32,
    .batch_norm = tt__cpu_batch_norm_f32,
    .batch_norm_backward = tt__cpu_batch_norm_backward_f32,
    .batch_norm_give = tt__cpu_batch_norm_give_f32,
    .row_norm = tt__cpu_row_norm_f32,
    .row_norm_backward = tt__cpu_row_norm_backward_f32,
    .log_softmax = tt__cpu_log_softmax_f32,
    .log_softmax_backward = tt__cpu_log_softmax_backward_f32,
    .cross_entropy = tt__cpu_cross_entropy_f32,
    .cross_entropy_backward = tt__cpu_cross_entropy_backward_f32,
    .mse_loss = tt__cpu_mse_loss_f32,
    .mse_loss_backward = tt__cpu_mse_loss_backward_f32,
    .index_select = tt__cpu_index_select,
    .index_add = tt__cpu_index_add_f32,
    .rnn_cell = tt__cpu_rnn_cell_f32,
    .rnn_cell_backward = tt__cpu_rnn_cell_backward_f32,
    .attention = tt__cpu_attention,
    .attention_backward = tt__cpu_attention_backward,
};

static const tt__kernels half = {
    .fill = tt__cpu_fill,
    .copy = tt__cpu_copy,
    .convert = tt__cpu_convert,
    .index_select = tt__cpu_index_select,
    .add = tt__cpu_add_half,
    .sub = tt__cpu_sub_half,
    .mul = tt__cpu_mul_half,
    .scale = tt__cpu_scale_half,
    .relu = tt__cpu_relu_half,
    .relu_backward = tt__cpu_relu_backward_half,
    .unary = tt__cpu_unary_half,
    .unary_backward = tt__cpu_unary_backward_half,
    .dropout = tt__cpu_dropout_half,
    .sum = tt__cpu_sum_half,
    .matmul = tt__cpu_matmul_half,
    .matmul_bias = tt__cpu_matmul_bias_half,
    .conv2d = tt__cpu_conv2d_half,
    .conv2d_backward_data = tt__cpu_conv2d_backward_data_half,
    .conv2d_backward_weight = tt__cpu_conv2d_backward_weight_half,
    .max_pool2d = tt__cpu_max_pool2d_half,
    .max_pool2d_backward = tt__cpu_max_pool2d_backward_half,
    .softmax = tt__cpu_softmax_half,
    .softmax_backward = tt__cpu_softmax_backward_half,
    .log_softmax = tt__cpu_log_softmax_half,
    .log_softmax_backward = tt__cpu_log_softmax_backward_half,
    .attention = tt__cpu_attention_half,
    .attention_backward = tt__cpu_attention_backward_half,
};

static const tt__kernels any = {.fill = tt__cpu_fill, .copy = tt__cpu_copy, .index_select = tt__cpu_index_select};

static const tt__kernels *const by_dtype[TT__DTYPES] = {
    [TT_F32] = &f32, [TT_F64] = &any, [TT_F16] = &half, [TT_BF16] = &half, [TT_I8] = &any,
    [TT_I16] = &any, [TT_I32] = &any, [TT_I64] = &any,  [TT_U8] = &any,    [TT_BOOL] = &any,
};

const tt_device tt__cpu_device = {.name = "cpu", .kernels = by_dtype, .fallback = &tt__reference_device};
