/* tutti/functional.h: operators with gradients. PyTorch: torch. It includes nn_functional.h: torch.nn.functional.
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

/* a + b, a - b, a * b, with PyTorch's broadcasting. */
TT_API tt_tensor *tt_add(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_sub(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_mul(tt_tensor *a, tt_tensor *b);

/* a / b, with PyTorch's broadcasting. */
TT_API tt_tensor *tt_div(tt_tensor *a, tt_tensor *b);

/* a to the power of b, with PyTorch's broadcasting: NaN where a is below 0 and b is no whole number. Where a is 0 and b
 * is not below 0, b gets no gradient. PyTorch: pow with a tensor. */
TT_API tt_tensor *tt_pow_tensor(tt_tensor *a, tt_tensor *b);

/* The larger / smaller of both; NaN where either is. Where they are equal each gets half of the gradient. */
TT_API tt_tensor *tt_maximum(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_minimum(tt_tensor *a, tt_tensor *b);

/* x times a number / plus a number / to the power of a number. PyTorch: mul, add and pow with a number. */
TT_API tt_tensor *tt_scale(tt_tensor *x, double factor);
TT_API tt_tensor *tt_add_scalar(tt_tensor *x, double number);
TT_API tt_tensor *tt_pow(tt_tensor *x, double exponent);

/* e^x, the natural logarithm, that of 1 + x (exact for x near 0, too), the square root. */
TT_API tt_tensor *tt_exp(tt_tensor *x);
TT_API tt_tensor *tt_log(tt_tensor *x);
TT_API tt_tensor *tt_log1p(tt_tensor *x);
TT_API tt_tensor *tt_sqrt(tt_tensor *x);

/* |x|, -x, 1 / x. */
TT_API tt_tensor *tt_abs(tt_tensor *x);
TT_API tt_tensor *tt_neg(tt_tensor *x);
TT_API tt_tensor *tt_reciprocal(tt_tensor *x);

/* x between two numbers, which may be infinite; all are `max` where min is above it. Its gradient is 0 at the bounds,
 * too, as in current PyTorch (1.13 had 1 there). TT_ERR_INVALID a bound that is NaN. */
TT_API tt_tensor *tt_clamp(tt_tensor *x, double min, double max);

/* ---- in place: x changes, and is returned ----
 *
 * A call is recorded like any other: x then has its history. Backward over an earlier record that needs what stood in x
 * is an error (TT_ERR_STATE), found by the version of its storage. Errors besides the others: TT_ERR_STATE where the
 * call is recorded and x is a leaf that requires a gradient (PyTorch refuses that, too: change it under no_grad),
 * belongs to a module or data set, or has had views, whose records would not know (PyTorch's would);
 * TT_ERR_INVALID x repeats elements in memory. b is repeated to x's shape. */

/* x += b, x -= b. PyTorch: Tensor.add_, sub_. */
TT_API tt_tensor *tt_add_(tt_tensor *x, tt_tensor *b);
TT_API tt_tensor *tt_sub_(tt_tensor *x, tt_tensor *b);

/* x *= b, x /= b, x *= factor. PyTorch: Tensor.mul_, div_. */
TT_API tt_tensor *tt_mul_(tt_tensor *x, tt_tensor *b);
TT_API tt_tensor *tt_div_(tt_tensor *x, tt_tensor *b);
TT_API tt_tensor *tt_scale_(tt_tensor *x, double factor);

/* x = max(x, 0). */
TT_API tt_tensor *tt_relu_(tt_tensor *x);

/* All of x (any dtype) becomes `value` / 0. TT_ERR_INVALID a value that x's integer type does not hold. */
TT_API tt_tensor *tt_fill_(tt_tensor *x, double value);
TT_API tt_tensor *tt_zero_(tt_tensor *x);

/* ---- choices ---- */

/* a where condition (bool) holds, else b; with broadcasting. a and b of one dtype, whatever it is; gradients for
 * floats. */
TT_API tt_tensor *tt_where(tt_tensor *condition, tt_tensor *a, tt_tensor *b);

/* value where mask (bool) holds, else x, of any dtype; with broadcasting. TT_ERR_INVALID a value that x's integer type
 * does not hold. */
TT_API tt_tensor *tt_masked_fill(tt_tensor *x, tt_tensor *mask, double value);

/* ---- reductions ---- */

typedef struct tt_sum_args {
    tt_tensor *x; /* required */
    TT_OPTIONS;
    tt_dims dim;  /* what is reduced; none: all dimensions */
    bool keepdim; /* these stay, with size 1 */
    char tt_end;  /* not an option: see base.h */
} tt_sum_args;

/* Sum / mean of all elements, a scalar, or along dimensions.
 *   tt_sum(x)     tt_mean(x, .dim = TT_DIMS(0, -1), .keepdim = true)
 * Errors, here and below: TT_ERR_SHAPE a dimension that x lacks, or that comes twice. */
TT_API tt_tensor *tt_sum_with(const tt_sum_args *args, size_t size);
TT_API tt_tensor *tt_mean_with(const tt_sum_args *args, size_t size);
#define TT_SUM_ARGS_INIT TT_ARGS_INIT

typedef struct tt_var_args {
    tt_tensor *x;      /* required */
    double correction; /* required */
    TT_OPTIONS;
    tt_dims dim;  /* as for tt_sum() */
    bool keepdim; /* these stay, with size 1 */
    char tt_end;  /* not an option: see base.h */
} tt_var_args;

/* The sum of (x - mean)^2 over n elements, divided by n - correction: 1 for an estimate from a sample (PyTorch's
 * default), 0 for the mean.
 *   tt_var(x, 1, .dim = TT_DIMS(0)) */
TT_API tt_tensor *tt_var_with(const tt_var_args *args, size_t size);
#define TT_VAR_ARGS_INIT TT_ARGS_INIT

typedef struct tt_norm_args {
    tt_tensor *x; /* required */
    double p;     /* required */
    TT_OPTIONS;
    tt_dims dim;  /* as for tt_sum() */
    bool keepdim; /* these stay, with size 1 */
    char tt_end;  /* not an option: see base.h */
} tt_norm_args;

/* (sum of |x|^p)^(1/p); p = INFINITY: the largest |x|; 0: how many are not 0. Its gradient at 0 is 0.
 *   tt_norm(x, 2, .dim = TT_DIMS(1))
 * TT_ERR_INVALID p below 0 or NaN. */
TT_API tt_tensor *tt_norm_with(const tt_norm_args *args, size_t size);
#define TT_NORM_ARGS_INIT TT_ARGS_INIT

typedef struct tt_max_args {
    tt_tensor *x; /* required; any dtype */
    TT_OPTIONS;
    tt_dims dim;         /* one dimension; none: all elements */
    bool keepdim;        /* the dimension stays, with size 1 */
    tt_tensor **indices; /* receives where they are along dim, i64, the first of equals; NULL on failure */
    char tt_end;         /* not an option: see base.h */
} tt_max_args;

/* The largest / smallest elements along a dimension, or of all; NaN comes before any number. The gradient goes to the
 * element of that index; of all elements, those that are equal share it.
 *   tt_max(x)     tt_max(x, .dim = TT_DIMS(1), .indices = &i)
 * Errors: TT_ERR_SHAPE no elements; TT_ERR_INVALID several dimensions, or indices without one. */
TT_API tt_tensor *tt_max_with(const tt_max_args *args, size_t size);
TT_API tt_tensor *tt_min_with(const tt_max_args *args, size_t size);
#define TT_MAX_ARGS_INIT TT_ARGS_INIT

/* The largest / smallest elements along any dimensions, of any dtype; NaN comes before any number. Those that are equal
 * share the gradient; where NaN is the largest, all that it was chosen from have a gradient of NaN.
 *   tt_amax(x)     tt_amin(x, .dim = TT_DIMS(0, -1), .keepdim = true)
 * Errors: TT_ERR_SHAPE no elements to choose from. */
TT_API tt_tensor *tt_amax_with(const tt_sum_args *args, size_t size);
TT_API tt_tensor *tt_amin_with(const tt_sum_args *args, size_t size);

#ifndef __cplusplus
#define tt_sum(...) tt_sum_with(TT_ARGS(tt_sum_args, .x = __VA_ARGS__))
#define tt_mean(...) tt_mean_with(TT_ARGS(tt_sum_args, .x = __VA_ARGS__))
#define tt_amax(...) tt_amax_with(TT_ARGS(tt_sum_args, .x = __VA_ARGS__))
#define tt_amin(...) tt_amin_with(TT_ARGS(tt_sum_args, .x = __VA_ARGS__))
#define tt_max(...) tt_max_with(TT_ARGS(tt_max_args, .x = __VA_ARGS__))
#define tt_min(...) tt_min_with(TT_ARGS(tt_max_args, .x = __VA_ARGS__))
#define tt_var(x_, ...) tt_var_with(TT_ARGS(tt_var_args, .x = (x_), .correction = __VA_ARGS__))
#define tt_norm(x_, ...) tt_norm_with(TT_ARGS(tt_norm_args, .x = (x_), .p = __VA_ARGS__))
#endif

/* ---- products ---- */

/* a (...,M,K) times b (...,K,N) -> (...,M,N), where (...) broadcast; b (K): a column, a (K): a row, and the result has
 * no such dimension. */
TT_API tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b);

/* a (B,M,K) times b (B,K,N) -> (B,M,N). */
TT_API tt_tensor *tt_bmm(tt_tensor *a, tt_tensor *b);

/* x (B...,C), weight (K,C), bias (K) or NULL -> (B...,K) = x weight^T + bias. */
TT_API tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias);

/* ---- joining; any dtype, but one ---- */

/* Join `count` tensors along dimension `dim`, the only one in which their sizes may differ / tensors of one shape along
 * a new dimension `dim` of the result. NULL among them gives NULL. TT_ERR_INVALID: no tensors. */
TT_API tt_tensor *tt_cat(tt_tensor *const *x, int64_t count, int dim);
TT_API tt_tensor *tt_stack(tt_tensor *const *x, int64_t count, int dim);

/* ---- indexing; any dtype ---- */

/* Indices are i64, in 0..n-1 of the dimension that they index (TT_ERR_INVALID names the first that is not, and the
 * limit). Where several name one place, gradients are added in row-major order of the indices, whatever the number of
 * threads: in f32 for f16 and bf16.
 *
 * index (n) -> entries index[0], ..., index[n-1] of dimension `dim`. */
TT_API tt_tensor *tt_index_select(tt_tensor *x, int dim, tt_tensor *index);

/* index, with as many dimensions as x and no larger but in `dim`: y[i][j] = x[index[i][j]][j] for dim 0, and so on.
 * PyTorch: gather, scatter; tt_gather() and tt_scatter() are collectives. */
TT_API tt_tensor *tt_gather_dim(tt_tensor *x, int dim, tt_tensor *index);

/* A copy y of x in which, for dim 0, y[index[i][j]][j] becomes src[i][j] (the last one in row-major order counts) / a
 * number, converted to x's dtype as tt_to() does / its sum with src[i][j]; other dims alike. index is as for
 * tt_gather_dim(), and no larger than src. */
TT_API tt_tensor *tt_scatter_dim(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src);
TT_API tt_tensor *tt_scatter_value(tt_tensor *x, int dim, tt_tensor *index, double value);
TT_API tt_tensor *tt_scatter_add(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src);

typedef struct tt_embedding_args {
    tt_tensor *weight;  /* required: (V, C) floats */
    tt_tensor *indices; /* required: i64 of any shape */
    TT_OPTIONS;
    const int64_t *padding_idx; /* a row (negative: from the end) that gets no gradient; NULL: none */
    bool sparse;                /* the weight's gradient is of the rows that were read: tt_sparse_grad_values(). Under
                                   tt_ddp() for the weights of tt_nn_embedding(.sparse = true) alone */
    char tt_end;                /* not an option: see base.h */
} tt_embedding_args;

/* indices (...) -> rows of weight, (..., C):  tt_embedding(weight, tokens, .padding_idx = &(int64_t){0})
 * Errors of .sparse: TT_ERR_UNSUPPORTED a weight that a recorded operator made. */
TT_API tt_tensor *tt_embedding_with(const tt_embedding_args *args, size_t size);
#define TT_EMBEDDING_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_embedding(weight_, ...) \
    tt_embedding_with(TT_ARGS(tt_embedding_args, .weight = (weight_), .indices = __VA_ARGS__))
#endif

/* ---- order ---- */

/* x (..., R, C) of any dtype where column - row is at least `diagonal` (triu) or at most that (tril), else 0. */
TT_API tt_tensor *tt_triu(tt_tensor *x, int64_t diagonal);
TT_API tt_tensor *tt_tril(tt_tensor *x, int64_t diagonal);

/* Sums of the entries of dimension `dim` up to each; added up in double, each rounded once. */
TT_API tt_tensor *tt_cumsum(tt_tensor *x, int dim);

typedef struct tt_sort_args {
    tt_tensor **values, **indices; /* required: out */
    tt_tensor *x;                  /* required: any dtype */
    int dim;                       /* required */
    TT_OPTIONS;
    bool descending;
    char tt_end; /* not an option: see base.h */
} tt_sort_args;

/* values: x sorted along `dim`; indices: the place of each in x (i64). Equal ones stay in order; NaN counts as largest.
 * Gradients flow through `values`. After an error neither is written.
 *   tt_sort(&values, &indices, x, -1, .descending = true)
 * Errors: as of operators; x NULL: as tt_item(). */
TT_API TT_NODISCARD tt_status tt_sort_with(const tt_sort_args *args, size_t size);
#define TT_SORT_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_sort(values_, indices_, x_, ...) \
    tt_sort_with(TT_ARGS(tt_sort_args, .values = (values_), .indices = (indices_), .x = (x_), .dim = __VA_ARGS__))
#endif

typedef struct tt_topk_args {
    tt_tensor **values, **indices; /* required: out */
    tt_tensor *x;                  /* required: any dtype */
    int64_t k;                     /* required: 0 to the size of dim */
    int dim;                       /* required */
    TT_OPTIONS;
    bool smallest; /* else the largest */
    char tt_end;   /* not an option: see base.h */
} tt_topk_args;

/* The k largest along `dim`, in the order of a descending tt_sort():  tt_topk(&values, &indices, x, 5, -1) */
TT_API TT_NODISCARD tt_status tt_topk_with(const tt_topk_args *args, size_t size);
#define TT_TOPK_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_topk(values_, indices_, x_, k_, ...) \
    tt_topk_with(                               \
        TT_ARGS(tt_topk_args, .values = (values_), .indices = (indices_), .x = (x_), .k = (k_), .dim = __VA_ARGS__))
#endif

typedef struct tt_argsort_args {
    tt_tensor *x; /* required: any dtype */
    int dim;      /* required */
    TT_OPTIONS;
    bool descending;
    char tt_end; /* not an option: see base.h */
} tt_argsort_args;

/* The indices that tt_sort() gives:  tt_argsort(x, -1) */
TT_API tt_tensor *tt_argsort_with(const tt_argsort_args *args, size_t size);
#define TT_ARGSORT_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_argsort(x_, ...) tt_argsort_with(TT_ARGS(tt_argsort_args, .x = (x_), .dim = __VA_ARGS__))
#endif

TT_END_DECLS

#include <tutti/nn_functional.h>

#endif
