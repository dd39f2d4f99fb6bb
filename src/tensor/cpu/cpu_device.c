/* The host's CPUs: the kernels that are faster than the plain loops, which serve for the rest. */
#include "tensor/cpu/cpu_copy.h"
#include "tensor/cpu/cpu_dropout.h"
#include "tensor/cpu/cpu_elementwise.h"
#include "tensor/cpu/cpu_pointwise.h"
#include "tensor/cpu/cpu_reduce.h"
#include "tensor/cpu/cpu_softmax.h"
#include "tensor/cpu/onednn.h"

static const tt__kernels f32 = {
    .copy = tt__cpu_copy,
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
    .softmax = tt__cpu_softmax_f32,
    .softmax_backward = tt__cpu_softmax_backward_f32,
    .log_softmax = tt__cpu_log_softmax_f32,
    .log_softmax_backward = tt__cpu_log_softmax_backward_f32,
    .cross_entropy = tt__cpu_cross_entropy_f32,
    .cross_entropy_backward = tt__cpu_cross_entropy_backward_f32,
    .mse_loss = tt__cpu_mse_loss_f32,
    .mse_loss_backward = tt__cpu_mse_loss_backward_f32,
};

static const tt__kernels any = {.copy = tt__cpu_copy};

static const tt__kernels *const by_dtype[TT__DTYPES] = {
    [TT_F32] = &f32, [TT_F64] = &any, [TT_F16] = &any, [TT_BF16] = &any, [TT_I8] = &any,
    [TT_I16] = &any, [TT_I32] = &any, [TT_I64] = &any, [TT_U8] = &any,   [TT_BOOL] = &any,
};

const tt_device tt__cpu_device = {.name = "cpu", .kernels = by_dtype, .fallback = &tt__reference_device};
