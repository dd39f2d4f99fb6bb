/* tutti/nn_functional.h: the operators of networks: activations, convolutions, pooling, attention, normalisation,
 * losses. functional.h says what all operators have in common, and includes this. PyTorch: torch.nn.functional. */
#ifndef TUTTI_NN_FUNCTIONAL_H
#define TUTTI_NN_FUNCTIONAL_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* ---- activations ---- */

/* max(x, 0). NaN stays NaN. */
TT_API tt_tensor *tt_relu(tt_tensor *x);

/* x where it is above 0, else x times a number (PyTorch's default is 0.01). */
TT_API tt_tensor *tt_leaky_relu(tt_tensor *x, double negative_slope);

/* 1 / (1 + e^-x); x sigmoid(x); the hyperbolic tangent. */
TT_API tt_tensor *tt_sigmoid(tt_tensor *x);
TT_API tt_tensor *tt_silu(tt_tensor *x);
TT_API tt_tensor *tt_tanh(tt_tensor *x);

typedef struct tt_gelu_args {
    tt_tensor *x; /* required */
    TT_OPTIONS;
    bool tanh;   /* the approximation by tanh. PyTorch: approximate="tanh" */
    char tt_end; /* not an option: see base.h */
} tt_gelu_args;

/* x times the normal distribution's probability of being below x.
 *   tt_gelu(x)     tt_gelu(x, .tanh = true) */
TT_API tt_tensor *tt_gelu_with(const tt_gelu_args *args, size_t size);
#define TT_GELU_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_gelu(...) tt_gelu_with(TT_ARGS(tt_gelu_args, .x = __VA_ARGS__))
#endif

/* ---- dropout ---- */

typedef struct tt_dropout_args {
    tt_tensor *x;  /* required */
    double p;      /* required: how likely an element is dropped, 0..1 */
    bool training; /* required: else x comes back as it is */
    TT_OPTIONS;
    tt_generator *generator; /* NULL: the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_dropout_args;

/* Each element is 0 with probability p, else divided by 1 - p. A call takes 64 bits of the generator as a key; which
 * elements are dropped follows from it (Philox) and from their places in memory, whatever the number of threads: the
 * same seed gives the same run, though not PyTorch's. x itself where nothing is dropped (p = 0, or not training).
 *   tt_dropout(x, 0.1, true)     tt_dropout(x, 0.5, tt_module_training(self))
 * TT_ERR_INVALID p outside of 0..1. */
TT_API tt_tensor *tt_dropout_with(const tt_dropout_args *args, size_t size);
#define TT_DROPOUT_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_dropout(x_, p_, ...) tt_dropout_with(TT_ARGS(tt_dropout_args, .x = (x_), .p = (p_), .training = __VA_ARGS__))
#endif

/* ---- images ---- */

typedef enum tt_interpolate_mode { TT_NEAREST, TT_BILINEAR } tt_interpolate_mode;

typedef struct tt_interpolate_args {
    tt_tensor *x;  /* required: (N, C, H, W) */
    tt_shape size; /* required: TT_SHAPE(H, W) of the result, at least 1 each */
    TT_OPTIONS;
    tt_interpolate_mode mode;
    bool align_corners; /* of TT_BILINEAR: the image ends at the middles of its outer elements, not at their edges */
    char tt_end;        /* not an option: see base.h */
} tt_interpolate_args;

/* x in another height and width:  tt_interpolate(x, TT_SHAPE(32, 32), .mode = TT_BILINEAR) */
TT_API tt_tensor *tt_interpolate_with(const tt_interpolate_args *args, size_t size);
#define TT_INTERPOLATE_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_interpolate(x_, ...) tt_interpolate_with(TT_ARGS(tt_interpolate_args, .x = (x_), .size = __VA_ARGS__))
#endif

/* ---- convolutions ---- */

typedef struct tt_conv2d_args {
    tt_tensor *x;      /* required: (N,C,H,W) */
    tt_tensor *weight; /* required: (K,C/groups,R,S) */
    TT_OPTIONS;
    tt_tensor *bias;      /* (K) */
    int64_t stride;       /* along H and W; 0, the default, is 1 */
    int64_t padding;      /* zeros on each side */
    int64_t dilation;     /* distance of two elements of weight; 0, the default, is 1 */
    int64_t groups;       /* of channels, each with its own outputs; 0, the default, is 1 */
    int64_t stride_hw[2]; /* these three instead of one number: {along H, along W} */
    int64_t padding_hw[2];
    int64_t dilation_hw[2];
    char tt_end; /* not an option: see base.h */
} tt_conv2d_args;

/* (N,K,P,Q), P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1, and Q of W and S. The result is channels last
 * where x or weight is (tt_to_memory_format()). Windows of 3 x 3 between 16 or more channels may be computed by
 * Winograd's F(4 x 4, 3 x 3) (Lavin and Gray 2015): as exact as sums in another order, but an infinity in x may then
 * give NaN in a window beside it.
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

/* (N,K,Q). Computed as tt_conv2d() of one row, with its errors. */
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
 * - 2 padding + dilation (R - 1) + output_padding + 1, and W of Q and S. Memory order and errors are tt_conv2d()'s. */
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

/* The mean of rows floor(p H / P) .. ceil((p + 1) H / P) - 1, and of such columns: (N,C,P,Q) with `height` P and
 * `width` Q, whatever x's size is. TT_ERR_INVALID one below 1. */
TT_API tt_tensor *tt_adaptive_avg_pool2d(tt_tensor *x, int64_t height, int64_t width);

/* ---- attention ---- */

typedef struct tt_scaled_dot_product_attention_args {
    tt_tensor *q; /* required: (..., T, D) */
    tt_tensor *k; /* required: (..., S, D) */
    tt_tensor *v; /* required: (..., S, Dv) */
    TT_OPTIONS;
    /* broadcasts to (..., T, S): bool, true where k is seen, or of q's dtype, added to the scores. It gets no gradient:
     * TT_ERR_UNSUPPORTED if it requires one. NULL: none */
    tt_tensor *attn_mask;
    bool is_causal; /* row t sees the first t + 1 of k; together with attn_mask both hide */
    double scale;   /* 0: 1 / sqrt(D) */
    char tt_end;    /* not an option: see base.h */
} tt_scaled_dot_product_attention_args;

/* softmax(scale q k^T + mask) v, (..., T, Dv); the dimensions (...) are equal. Memory grows with T + S, not with T x S;
 * backward of 16-bit floats may take up to 1 GiB besides on a CUDA device. A row that sees nothing, as all its scores
 * are -infinity, is 0; one with a score of infinity or NaN is NaN. NaN or infinity in a row of v that a mask hides may
 * reach the result all the same, as 0 times it is NaN. 16-bit floats are computed in f32.
 *   tt_scaled_dot_product_attention(q, k, v, .is_causal = true) */
TT_API tt_tensor *tt_scaled_dot_product_attention_with(const tt_scaled_dot_product_attention_args *args, size_t size);
#define TT_SCALED_DOT_PRODUCT_ATTENTION_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_scaled_dot_product_attention(q_, k_, ...) \
    tt_scaled_dot_product_attention_with(            \
        TT_ARGS(tt_scaled_dot_product_attention_args, .q = (q_), .k = (k_), .v = __VA_ARGS__))
#endif

/* ---- normalisation: (x - mean) / sqrt(variance + eps), times weight, plus bias, where these are given ---- */

typedef struct tt_batch_norm_args {
    tt_tensor *x; /* required: (N,C) or (N,C,...) */
    TT_OPTIONS;
    tt_tensor *running_mean, *running_var; /* (C): both or none; required unless `training` */
    tt_tensor *weight, *bias;              /* (C) */
    bool training;   /* normalise by the mean and variance of x, and move the running ones, in place, towards them */
    double momentum; /* how far the running ones move; 0, the default, is 0.1 */
    double eps;      /* 0, the default, is 1e-5 */
    char tt_end;     /* not an option: see base.h */
} tt_batch_norm_args;

/* Over all dimensions but C. The running variance is the unbiased one. The result has x's order of memory.
 *   tt_batch_norm(x, .running_mean = mean, .running_var = var, .training = true)
 * An empty batch gives an empty result; in training it leaves the running statistics as they are.
 * Errors: TT_ERR_SHAPE; TT_ERR_INVALID no running statistics though not `training`, one element a channel in training,
 * running statistics that repeat elements in memory, a negative number. */
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

/* Over each group of channels of each image; an image without elements is TT_ERR_SHAPE, as in current PyTorch, but the
 * batch may be empty. Errors as tt_layer_norm()'s, and TT_ERR_INVALID num_groups. */
TT_API tt_tensor *tt_group_norm_with(const tt_group_norm_args *args, size_t size);

typedef struct tt_rms_norm_args {
    tt_tensor *x;              /* required */
    tt_shape normalized_shape; /* required: the last dimensions of x */
    TT_OPTIONS;
    tt_tensor *weight; /* normalized_shape */
    double eps;        /* 0, the default: 2^-23, of f64 2^-52, the distance from 1 to the next number of what x is
                          computed in (f32 for 16-bit floats) */
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

/* e^x, divided by its sum along dim / x - log sum exp x along dim (negative counts from the end). */
TT_API tt_tensor *tt_softmax(tt_tensor *x, int dim);
TT_API tt_tensor *tt_log_softmax(tt_tensor *x, int dim);

/* ---- losses ---- */

/* What becomes of the losses: their mean, their sum, or they stay as they are. Of an empty batch the mean is NaN, the
 * sum 0, and gradients are empty. BATCHMEAN: the sum, divided by the size of the first dimension; of tt_kl_div()
 * only. */
typedef enum tt_reduction {
    TT_REDUCTION_MEAN,
    TT_REDUCTION_SUM,
    TT_REDUCTION_NONE,
    TT_REDUCTION_BATCHMEAN
} tt_reduction;

/* A class that may be given or not: TT_INDEX(0). */
typedef struct tt_index {
    bool given;
    int64_t value;
} tt_index;
#ifndef __cplusplus
#define TT_INDEX(index) ((tt_index){true, (index)})
#endif

typedef struct tt_nll_loss_args {
    tt_tensor *log_prob; /* required: (B,V), or (B,V,d...) with a target (B,d...) */
    tt_tensor *target;   /* required: i64 (B) in 0..V-1, or ignore_index */
    TT_OPTIONS;
    tt_tensor *weight;     /* (V): how much each class counts; NULL: 1. It gets no gradient */
    tt_index ignore_index; /* rows with this target don't count; not given: -100, as in PyTorch */
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_nll_loss_args;

/* -log_prob[b][target[b]] of each row, times the weight of its target; their mean is divided by the sum of these
 * weights.
 *   tt_nll_loss(log_prob, target)     tt_nll_loss(log_prob, target, .ignore_index = TT_INDEX(0))
 * TT_ERR_INVALID names a target out of range. */
TT_API tt_tensor *tt_nll_loss_with(const tt_nll_loss_args *args, size_t size);
#define TT_NLL_LOSS_ARGS_INIT TT_ARGS_INIT

typedef struct tt_cross_entropy_args {
    tt_tensor *logits; /* required: (B,V), or (B,V,d...) with a target (B,d...) */
    tt_tensor *target; /* required: i64 (B) in 0..V-1, or ignore_index */
    TT_OPTIONS;
    tt_tensor *weight;      /* as for tt_nll_loss() */
    tt_index ignore_index;  /* as for tt_nll_loss() */
    double label_smoothing; /* this share of each target is divided among all classes; 0..1 */
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_cross_entropy_args;

/* nll_loss(log_softmax(logits, 1), target), without options in one step.
 *   tt_cross_entropy(logits, target)     tt_cross_entropy(logits, target, .label_smoothing = 0.1)
 * Errors as for tt_nll_loss(). */
TT_API tt_tensor *tt_cross_entropy_with(const tt_cross_entropy_args *args, size_t size);
#define TT_CROSS_ENTROPY_ARGS_INIT TT_ARGS_INIT

typedef struct tt_mse_loss_args {
    tt_tensor *input;  /* required */
    tt_tensor *target; /* required: of the same shape */
    TT_OPTIONS;
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_mse_loss_args;

/* (input - target)^2.
 *   tt_mse_loss(input, target)     tt_mse_loss(input, target, .reduction = TT_REDUCTION_SUM) */
TT_API tt_tensor *tt_mse_loss_with(const tt_mse_loss_args *args, size_t size);
#define TT_MSE_LOSS_ARGS_INIT TT_ARGS_INIT

typedef struct tt_l1_loss_args {
    tt_tensor *input;  /* required */
    tt_tensor *target; /* required: of the same shape */
    TT_OPTIONS;
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_l1_loss_args;

/* |input - target|.
 *   tt_l1_loss(input, target) */
TT_API tt_tensor *tt_l1_loss_with(const tt_l1_loss_args *args, size_t size);
#define TT_L1_LOSS_ARGS_INIT TT_ARGS_INIT

typedef struct tt_smooth_l1_loss_args {
    tt_tensor *input;  /* required */
    tt_tensor *target; /* required: of the same shape */
    double beta;       /* required: at least 0; PyTorch's default is 1 */
    TT_OPTIONS;
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_smooth_l1_loss_args;

/* With d = |input - target|: d^2 / (2 beta) where d is below beta, else d - beta / 2.
 *   tt_smooth_l1_loss(input, target, 1) */
TT_API tt_tensor *tt_smooth_l1_loss_with(const tt_smooth_l1_loss_args *args, size_t size);
#define TT_SMOOTH_L1_LOSS_ARGS_INIT TT_ARGS_INIT

typedef struct tt_binary_cross_entropy_with_logits_args {
    tt_tensor *input;  /* required: logits */
    tt_tensor *target; /* required: of the same shape, probabilities */
    TT_OPTIONS;
    tt_tensor *weight;     /* of each loss; NULL: 1. It and pos_weight broadcast to the input's shape */
    tt_tensor *pos_weight; /* of what targets of 1 cost; NULL: 1 */
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_binary_cross_entropy_with_logits_args;

/* -(target log sigmoid(input) + (1 - target) log(1 - sigmoid(input))).
 *   tt_binary_cross_entropy_with_logits(logits, target, .pos_weight = w) */
TT_API tt_tensor *tt_binary_cross_entropy_with_logits_with(const tt_binary_cross_entropy_with_logits_args *args,
                                                           size_t size);
#define TT_BINARY_CROSS_ENTROPY_WITH_LOGITS_ARGS_INIT TT_ARGS_INIT

typedef struct tt_kl_div_args {
    tt_tensor *input;  /* required: log probabilities */
    tt_tensor *target; /* required: of the same shape, probabilities */
    TT_OPTIONS;
    bool log_target; /* the target is log probabilities, too */
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_kl_div_args;

/* target log target - target input, where 0 log 0 is 0. A target of 0 gets a gradient of NaN, as in PyTorch. The
 * divergence of distributions is the reduction BATCHMEAN.
 *   tt_kl_div(log_q, p, .reduction = TT_REDUCTION_BATCHMEAN) */
TT_API tt_tensor *tt_kl_div_with(const tt_kl_div_args *args, size_t size);
#define TT_KL_DIV_ARGS_INIT TT_ARGS_INIT

#ifndef __cplusplus
#define tt_nll_loss(log_prob_, ...) \
    tt_nll_loss_with(TT_ARGS(tt_nll_loss_args, .log_prob = (log_prob_), .target = __VA_ARGS__))
#define tt_cross_entropy(logits_, ...) \
    tt_cross_entropy_with(TT_ARGS(tt_cross_entropy_args, .logits = (logits_), .target = __VA_ARGS__))
#define tt_mse_loss(input_, ...) tt_mse_loss_with(TT_ARGS(tt_mse_loss_args, .input = (input_), .target = __VA_ARGS__))
#define tt_l1_loss(input_, ...) tt_l1_loss_with(TT_ARGS(tt_l1_loss_args, .input = (input_), .target = __VA_ARGS__))
#define tt_smooth_l1_loss(input_, target_, ...) \
    tt_smooth_l1_loss_with(TT_ARGS(tt_smooth_l1_loss_args, .input = (input_), .target = (target_), .beta = __VA_ARGS__))
#define tt_binary_cross_entropy_with_logits(input_, ...) \
    tt_binary_cross_entropy_with_logits_with(            \
        TT_ARGS(tt_binary_cross_entropy_with_logits_args, .input = (input_), .target = __VA_ARGS__))
#define tt_kl_div(input_, ...) tt_kl_div_with(TT_ARGS(tt_kl_div_args, .input = (input_), .target = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
