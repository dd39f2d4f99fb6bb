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

/* a (...,M,K) times b (...,K,N) -> (...,M,N), where (...) broadcast; b (K): a column, a (K): a row, and the result has
 * no such dimension. */
TT_API tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b);

/* a (B,M,K) times b (B,K,N) -> (B,M,N). */
TT_API tt_tensor *tt_bmm(tt_tensor *a, tt_tensor *b);

/* x (B...,C), weight (K,C), bias (K) or NULL -> (B...,K) = x weight^T + bias. */
TT_API tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias);

/* ---- joining; any dtype, but one ---- */

/* `count` tensors, equal but in dimension `dim`, one after the other along it / equal ones side by side, in a new
 * dimension `dim` of the result. NULL among them gives NULL. TT_ERR_INVALID: no tensors. */
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

/* A copy of x where y[index[i][j]][j] = src[i][j] for dim 0, and so on (the last one in row-major order counts) / where
 * it is a number, converted to x's dtype / where src is added. index is as for tt_gather_dim(), and no larger than
 * src. */
TT_API tt_tensor *tt_scatter_dim(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src);
TT_API tt_tensor *tt_scatter_value(tt_tensor *x, int dim, tt_tensor *index, double value);
TT_API tt_tensor *tt_scatter_add(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src);

typedef struct tt_embedding_args {
    tt_tensor *weight;  /* required: (V, C) floats */
    tt_tensor *indices; /* required: i64 of any shape */
    TT_OPTIONS;
    const int64_t *padding_idx; /* a row (negative: from the end) that gets no gradient; NULL: none */
    char tt_end;                /* not an option: see base.h */
} tt_embedding_args;

/* indices (...) -> rows of weight, (..., C):  tt_embedding(weight, tokens, .padding_idx = &(int64_t){0}) */
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

/* x sorted along `dim`, and from where each came (i64). Equal ones stay in order; NaN counts as largest. Gradients flow
 * through `values`. After an error neither is written.
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

/* The k largest along `dim`, sorted, as tt_sort() would have them first:  tt_topk(&values, &indices, x, 5, -1) */
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

/* ---- images ---- */

typedef enum tt_interpolate_mode { TT_NEAREST, TT_BILINEAR } tt_interpolate_mode;

typedef struct tt_interpolate_args {
    tt_tensor *x;  /* required: (N, C, H, W) */
    tt_shape size; /* required: TT_SHAPE(H, W) of the result, at least 1 each */
    TT_OPTIONS;
    tt_interpolate_mode mode;
    bool align_corners; /* of TT_BILINEAR: the outer elements' middles, and not their edges, are the image's edges */
    char tt_end;        /* not an option: see base.h */
} tt_interpolate_args;

/* x in another height and width:  tt_interpolate(x, TT_SHAPE(32, 32), .mode = TT_BILINEAR) */
TT_API tt_tensor *tt_interpolate_with(const tt_interpolate_args *args, size_t size);
#define TT_INTERPOLATE_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_interpolate(x_, ...) tt_interpolate_with(TT_ARGS(tt_interpolate_args, .x = (x_), .size = __VA_ARGS__))
#endif

/* ---- attention ---- */

typedef struct tt_scaled_dot_product_attention_args {
    tt_tensor *q; /* required: (..., T, E) */
    tt_tensor *k; /* required: (..., S, E) */
    tt_tensor *v; /* required: (..., S, V) */
    TT_OPTIONS;
    /* broadcasts to (..., T, S): bool, true where k is seen, or of q's dtype, added to the scores. It gets no gradient:
     * TT_ERR_UNSUPPORTED if it requires one. NULL: none */
    tt_tensor *attn_mask;
    bool is_causal; /* row t sees the first t + 1 of k; together with attn_mask both hide */
    double scale;   /* 0: 1 / sqrt(E) */
    char tt_end;    /* not an option: see base.h */
} tt_scaled_dot_product_attention_args;

/* softmax(scale q k^T + mask) v, (..., T, V); the dimensions (...) are equal. Memory grows with T + S, not with T x S.
 * A row that sees nothing is 0. 16-bit floats are computed in f32.
 *   tt_scaled_dot_product_attention(q, k, v, .is_causal = true) */
TT_API tt_tensor *tt_scaled_dot_product_attention_with(const tt_scaled_dot_product_attention_args *args, size_t size);
#define TT_SCALED_DOT_PRODUCT_ATTENTION_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_scaled_dot_product_attention(q_, k_, ...) \
    tt_scaled_dot_product_attention_with(            \
        TT_ARGS(tt_scaled_dot_product_attention_args, .q = (q_), .k = (k_), .v = __VA_ARGS__))
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
