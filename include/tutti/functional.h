/* tutti/functional.h: operators with gradients. PyTorch: torch and torch.nn.functional.
 *
 * Each returns a new tensor, or NULL and an error that begins with its name; an input that is NULL gives NULL. Where an
 * input requires a gradient the call is recorded (autograd.h). Inputs are floats of one dtype on one device
 * (TT_ERR_DTYPE, TT_ERR_INVALID) unless said otherwise, of any layout. Views and copies are in tensor.h.
 * B batch, C channels, K outputs, V classes. */
#ifndef TUTTI_FUNCTIONAL_H
#define TUTTI_FUNCTIONAL_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* ---- element by element ---- */

/* Element by element, with PyTorch's broadcasting. */
TT_API tt_tensor *tt_add(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_sub(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_mul(tt_tensor *a, tt_tensor *b);

/* x times a number. */
TT_API tt_tensor *tt_scale(tt_tensor *x, double factor);

/* max(x, 0). NaN stays NaN. */
TT_API tt_tensor *tt_relu(tt_tensor *x);

/* ---- reductions ---- */

/* Mean / sum of all elements, a scalar. */
TT_API tt_tensor *tt_mean(tt_tensor *x);
TT_API tt_tensor *tt_sum(tt_tensor *x);

/* ---- products ---- */

/* a (M,K) times b (K,N) -> (M,N). */
TT_API tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b);

/* x (B...,C), weight (K,C), bias (K) or NULL -> (B...,K) = x weight^T + bias. */
TT_API tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias);

/* ---- convolutions ---- */

typedef struct tt_conv2d_args {
    tt_tensor *x;      /* required: (N,C,H,W) */
    tt_tensor *weight; /* required: (K,C/groups,R,S) */
    TT_OPTIONS;
    tt_tensor *bias;        /* (K) */
    int64_t stride;         /* along H and W; 0, the default, is 1 */
    int64_t padding;        /* zeros on each side */
    int64_t dilation;       /* distance of two elements of weight; 0, the default, is 1 */
    int64_t groups;         /* of channels, each with its own outputs; 0, the default, is 1 */
    int64_t stride_hw[2];   /* instead of the one number: {along H, along W} */
    int64_t padding_hw[2];  /* likewise */
    int64_t dilation_hw[2]; /* likewise */
    char tt_end;            /* not an option: see base.h */
} tt_conv2d_args;

/* (N,K,P,Q), P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1, Q likewise. The result lies channels last where x
 * or weight does (tt_to_memory_format()), which is the faster way on CPUs.
 *   tt_conv2d(x, weight, .bias = bias, .stride = 2, .padding_hw = {1, 0})
 * Errors: TT_ERR_SHAPE shapes that don't fit, or no window fits; TT_ERR_INVALID options out of range. */
TT_API tt_tensor *tt_conv2d_with(const tt_conv2d_args *args, size_t size);

typedef struct tt_conv1d_args {
    tt_tensor *x;      /* required: (N,C,L) */
    tt_tensor *weight; /* required: (K,C/groups,S) */
    TT_OPTIONS;
    tt_tensor *bias;                           /* (K) */
    int64_t stride, padding, dilation, groups; /* as tt_conv2d()'s */
    char tt_end;                               /* not an option: see base.h */
} tt_conv1d_args;

/* (N,K,Q). Computed as tt_conv2d() of one row; errors likewise. */
TT_API tt_tensor *tt_conv1d_with(const tt_conv1d_args *args, size_t size);

typedef struct tt_conv_transpose2d_args {
    tt_tensor *x;      /* required: (N,K,P,Q) */
    tt_tensor *weight; /* required: (K,C/groups,R,S) */
    TT_OPTIONS;
    tt_tensor *bias; /* (C) */
    int64_t stride, padding, dilation, groups;
    int64_t output_padding; /* rows and columns added at the end; below stride or dilation */
    int64_t stride_hw[2], padding_hw[2], dilation_hw[2], output_padding_hw[2];
    char tt_end; /* not an option: see base.h */
} tt_conv_transpose2d_args;

/* What tt_conv2d() with the same weight and options does to images (N,C,H,W), transposed: (N,C,H,W), H = (P - 1) stride
 * - 2 padding + dilation (R - 1) + output_padding + 1, W likewise. Lies and fails as tt_conv2d(). */
TT_API tt_tensor *tt_conv_transpose2d_with(const tt_conv_transpose2d_args *args, size_t size);
#define TT_CONV2D_ARGS_INIT TT_ARGS_INIT
#define TT_CONV1D_ARGS_INIT TT_ARGS_INIT
#define TT_CONV_TRANSPOSE2D_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_conv1d(x_, ...) tt_conv1d_with(TT_ARGS(tt_conv1d_args, .x = (x_), .weight = __VA_ARGS__))
#define tt_conv_transpose2d(x_, ...) \
    tt_conv_transpose2d_with(TT_ARGS(tt_conv_transpose2d_args, .x = (x_), .weight = __VA_ARGS__))
#define tt_conv2d(x_, ...) tt_conv2d_with(TT_ARGS(tt_conv2d_args, .x = (x_), .weight = __VA_ARGS__))
#endif

/* ---- pooling: x (N,C,H,W) -> (N,C,P,Q), channels last where x is ---- */

typedef struct tt_max_pool2d_args {
    tt_tensor *x;        /* required */
    int64_t kernel_size; /* required; 0: see kernel_size_hw */
    TT_OPTIONS;
    int64_t stride;                                                         /* 0, the default: kernel_size */
    int64_t padding;                                                        /* at most half of kernel_size */
    int64_t dilation;                                                       /* 0, the default, is 1 */
    int64_t kernel_size_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2]; /* instead of the one: {along H, along W} */
    bool ceil_mode; /* a window that begins inside but ends outside counts */
    char tt_end;    /* not an option: see base.h */
} tt_max_pool2d_args;

/* The largest element of each window; NaN where there is one. The gradient goes to the first of equal ones.
 *   tt_max_pool2d(x, 2)     tt_max_pool2d(x, 3, .stride = 2, .padding = 1)
 * Errors: TT_ERR_SHAPE x, or no window fits; TT_ERR_INVALID options out of range. */
TT_API tt_tensor *tt_max_pool2d_with(const tt_max_pool2d_args *args, size_t size);

typedef struct tt_avg_pool2d_args {
    tt_tensor *x;        /* required */
    int64_t kernel_size; /* required; 0: see kernel_size_hw */
    TT_OPTIONS;
    int64_t stride, padding; /* as tt_max_pool2d()'s */
    int64_t kernel_size_hw[2], stride_hw[2], padding_hw[2];
    bool ceil_mode;
    bool exclude_padding;     /* from the mean; PyTorch: count_include_pad=False */
    int64_t divisor_override; /* what sums are divided by; 0: the window's size */
    char tt_end;              /* not an option: see base.h */
} tt_avg_pool2d_args;

/* The mean of each window, padding counted as zeros. Errors as tt_max_pool2d()'s. */
TT_API tt_tensor *tt_avg_pool2d_with(const tt_avg_pool2d_args *args, size_t size);
#define TT_MAX_POOL2D_ARGS_INIT TT_ARGS_INIT
#define TT_AVG_POOL2D_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_max_pool2d(x_, ...) tt_max_pool2d_with(TT_ARGS(tt_max_pool2d_args, .x = (x_), .kernel_size = __VA_ARGS__))
#define tt_avg_pool2d(x_, ...) tt_avg_pool2d_with(TT_ARGS(tt_avg_pool2d_args, .x = (x_), .kernel_size = __VA_ARGS__))
#endif

/* The mean of rows floor(p H / P) .. ceil((p + 1) H / P) - 1, and columns likewise: (N,C,P,Q) with `height` P and
 * `width` Q, whatever x's size is. TT_ERR_INVALID one below 1. */
TT_API tt_tensor *tt_adaptive_avg_pool2d(tt_tensor *x, int64_t height, int64_t width);

/* ---- normalisation: (x - mean) / sqrt(variance + eps), times weight, plus bias, where these are given ---- */

typedef struct tt_batch_norm_args {
    tt_tensor *x; /* required: (N,C) or (N,C,...) */
    TT_OPTIONS;
    tt_tensor *running_mean, *running_var; /* (C): both or none; required unless `training` */
    tt_tensor *weight, *bias;              /* (C) */
    bool training;   /* normalise by the mean and variance of x, and move the running ones, in place, towards them */
    double momentum; /* how far; 0, the default, is 0.1 */
    double eps;      /* 0, the default, is 1e-5 */
    char tt_end;     /* not an option: see base.h */
} tt_batch_norm_args;

/* Over all dimensions but C. The running variance is of the unbiased kind. The result lies like x.
 *   tt_batch_norm(x, .running_mean = mean, .running_var = var, .training = true)
 * Errors: TT_ERR_SHAPE; TT_ERR_INVALID no running statistics though not `training`, less than two elements a channel in
 * training, a negative number. */
TT_API tt_tensor *tt_batch_norm_with(const tt_batch_norm_args *args, size_t size);

typedef struct tt_layer_norm_args {
    tt_tensor *x;              /* required */
    tt_shape normalized_shape; /* required: the last dimensions of x */
    TT_OPTIONS;
    tt_tensor *weight, *bias; /* normalized_shape */
    double eps;               /* 0, the default, is 1e-5 */
    char tt_end;              /* not an option: see base.h */
} tt_layer_norm_args;

/* Over the last dimensions: tt_layer_norm(x, TT_SHAPE(256), .weight = weight, .bias = bias).
 * Errors: TT_ERR_SHAPE; TT_ERR_INVALID a negative eps. */
TT_API tt_tensor *tt_layer_norm_with(const tt_layer_norm_args *args, size_t size);

typedef struct tt_group_norm_args {
    tt_tensor *x;       /* required: (N,C,...) */
    int64_t num_groups; /* required: divides C */
    TT_OPTIONS;
    tt_tensor *weight, *bias; /* (C) */
    double eps;               /* 0, the default, is 1e-5 */
    char tt_end;              /* not an option: see base.h */
} tt_group_norm_args;

/* Over each group of channels of each image. Errors as tt_layer_norm()'s, and TT_ERR_INVALID num_groups. */
TT_API tt_tensor *tt_group_norm_with(const tt_group_norm_args *args, size_t size);

typedef struct tt_rms_norm_args {
    tt_tensor *x;              /* required */
    tt_shape normalized_shape; /* required: the last dimensions of x */
    TT_OPTIONS;
    tt_tensor *weight; /* normalized_shape */
    double eps;        /* 0, the default: the distance from 1 to the next number of x's dtype */
    char tt_end;       /* not an option: see base.h */
} tt_rms_norm_args;

/* x / sqrt(mean of x^2 + eps), times weight, over the last dimensions. Errors as tt_layer_norm()'s. */
TT_API tt_tensor *tt_rms_norm_with(const tt_rms_norm_args *args, size_t size);
#define TT_BATCH_NORM_ARGS_INIT TT_ARGS_INIT
#define TT_LAYER_NORM_ARGS_INIT TT_ARGS_INIT
#define TT_GROUP_NORM_ARGS_INIT TT_ARGS_INIT
#define TT_RMS_NORM_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_batch_norm(...) tt_batch_norm_with(TT_ARGS(tt_batch_norm_args, .x = __VA_ARGS__))
#define tt_layer_norm(x_, ...) \
    tt_layer_norm_with(TT_ARGS(tt_layer_norm_args, .x = (x_), .normalized_shape = __VA_ARGS__))
#define tt_group_norm(x_, ...) tt_group_norm_with(TT_ARGS(tt_group_norm_args, .x = (x_), .num_groups = __VA_ARGS__))
#define tt_rms_norm(x_, ...) tt_rms_norm_with(TT_ARGS(tt_rms_norm_args, .x = (x_), .normalized_shape = __VA_ARGS__))
#endif

/* ---- softmax ---- */

/* x - log sum exp x along dim (negative counts from the end). */
TT_API tt_tensor *tt_log_softmax(tt_tensor *x, int dim);

/* ---- losses ---- */

/* log_prob (B,V), target i64 (B) in 0..V-1 -> mean of -log_prob[b][target[b]]. TT_ERR_INVALID names a target out of
 * range. */
TT_API tt_tensor *tt_nll_loss(tt_tensor *log_prob, tt_tensor *target);

/* logits (B,V), target i64 (B): nll_loss(log_softmax(logits, 1), target), in one step. */
TT_API tt_tensor *tt_cross_entropy(tt_tensor *logits, tt_tensor *target);

/* Mean of (input - target)^2 over all elements; shapes must be equal. */
TT_API tt_tensor *tt_mse_loss(tt_tensor *input, tt_tensor *target);

TT_END_DECLS
#endif
