/* The kernels of devices: on tensors with strides, without history.
 *
 * A device has one table of these for each element type; an entry may be NULL: then the device's fallback serves.
 * Callers have checked the tensors: all of a call lie on the device, shapes are as said here, the first tensor is
 * written and overlaps no other unless it is the same one. The dtype of the first tensor selects the table; all have
 * that dtype unless said otherwise. Kernels record errors and return them (TT_ERR_MEMORY, TT_ERR_SYSTEM). B batch, V
 * classes. "contiguous" is row-major without gaps. */
#ifndef TT_TENSOR_KERNELS_H
#define TT_TENSOR_KERNELS_H

#include "tensor/core/tensor.h"
#include "tensor/kernels/kernels_calls.h"
#include "tensor/rules/rules.h"

/* ---- element by element */

#define TT__POINTWISE_KERNELS(X)                                                                                      \
    /* One shape; repeated inputs have strides of 0. y = formula of x; dx of v and g. */                              \
    X(unary, (tt_tensor * y, const tt_tensor *x, const tt__unary *call))                                              \
    X(unary_backward, (tt_tensor * dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call))                \
    /* y = formula of x and z; d, of input 0 (x) or 1 (z), of x, z and g. */                                          \
    X(binary, (tt_tensor * y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call))                        \
    X(binary_backward,                                                                                                \
      (tt_tensor * d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g, const tt__binary *call, int input)) \
    /* By the dtype of a and b: y (bool) = a op b. y = condition (bool) ? a : b. */                                   \
    X(compare, (const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y))                             \
    X(where, (tt_tensor * y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b))                     \
    /* y = value where mask (bool) is `when`, else x. */                                                              \
    X(masked_fill, (tt_tensor * y, const tt_tensor *x, const tt_tensor *mask, bool when, double value))

/* ---- reductions */

#define TT__REDUCTION_KERNELS(X)                                                                                  \
    /* In these five y and g are spread: x's shape, with strides of 0 along what is reduced, n elements. */       \
    /* y = sum of (x - mean)^2 / (n - correction); the p-norm, p >= 0 or infinite; dx of x, y and g. */           \
    X(var, (tt_tensor * y, const tt_tensor *x, double correction))                                                \
    X(norm, (tt_tensor * y, const tt_tensor *x, double p))                                                        \
    X(norm_backward, (tt_tensor * dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g, double p))      \
    /* dx = g, divided among the elements of x that equal y. */                                                   \
    X(share_equal, (tt_tensor * dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g, bool nan_equals)) \
    /* By the dtype of x: y (bool) = is any element, or is each (`all`), not 0? */                                \
    X(any, (const tt_tensor *x, bool all, tt_tensor *y))                                                          \
    /* y = the largest or smallest along `dim`, index (i64) = where the first is; contiguous; both lack dim. */   \
    /* NaN comes before all. dx = g where `index` says, else 0. */                                                \
    X(extreme, (tt_tensor * y, tt_tensor * index, const tt_tensor *x, int dim, bool largest))                     \
    X(extreme_backward, (tt_tensor * dx, const tt_tensor *index, const tt_tensor *g, int dim))                    \
    /* Contiguous, along the last dimension: y = exp x / sum exp x; dx = y * (g - sum of g * y). */               \
    X(softmax, (tt_tensor * y, const tt_tensor *x))                                                               \
    X(softmax_backward, (tt_tensor * dx, const tt_tensor *y, const tt_tensor *g))

/* ---- indexing and order. `index` is i64, in range; `dim` is one of y's or x's */

/* X(name, arguments), one line a kernel. */
#define TT__INDEX_KERNELS(X)                                                                                           \
    /* Along `dim`, index (n): y[i] = x[index[i]]; y[index[i]] += x[i], i rising. */                                   \
    X(index_select, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                              \
    X(index_add, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                                 \
    /* For each place p of index, and q the same with index[p] in dimension `dim`: y[p] = x[q];              \
     * y[q] = x[p]; y[q] += x[p], in row-major order of p. */         \
    X(gather, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                                    \
    X(scatter, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                                   \
    X(scatter_add, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                               \
    /* Of the last two dimensions: y = x where column - row is at least (upper), at most `diagonal`, else 0. */        \
    X(triangle, (tt_tensor * y, const tt_tensor *x, int64_t diagonal, bool upper))                                     \
    /* Along `dim`: y[i] = x[0] + ... + x[i]; backwards: x[i] + ... + x[n-1]. */                                       \
    X(cumsum, (tt_tensor * y, const tt_tensor *x, int dim, bool backwards))                                            \
    /* Contiguous. The first k of each row of x, sorted, and where they were (i64); equal ones in order, NaN  \
     * as the largest: y and indices (..., k), x (..., n), k <= n. */        \
    X(sort, (tt_tensor * y, tt_tensor * indices, const tt_tensor *x, bool descending))                                 \
    /* Floats. y (N,C,H',W') = x (N,C,H,W) in another size; dx += g by the same weights. */                            \
    X(resize, (tt_tensor * y, const tt_tensor *x, const struct tt__resize *how))                                       \
    X(resize_backward, (tt_tensor * dx, const tt_tensor *g, const struct tt__resize *how))                             \
    /* f32, f64, others where a device has them, with f32 masks; last strides are 1: attention_loops.h says more. */   \
    X(attention, (tt_tensor * y, tt_tensor * stats, const struct tt__attention *in))                                   \
    X(attention_backward, (tt_tensor * dq, tt_tensor * dk, tt_tensor * dv, const tt_tensor *stats, const tt_tensor *g, \
                           const struct tt__attention *in))                                                            \
    /* For a batch, whose dimensions (...) come before these; NULL: matrices are computed one by one. */               \
    X(attention_batch, (tt_tensor * y, tt_tensor * stats, const struct tt__attention *in))                             \
    X(attention_batch_backward, (tt_tensor * dq, tt_tensor * dk, tt_tensor * dv, const tt_tensor *stats,               \
                                 const tt_tensor *g, const struct tt__attention *in))

/* ---- losses. R rows, V classes */

#define TT__LOSS_KERNELS(X)                                                                                       \
    /* Contiguous. x (R,V) log probabilities, t (R) i64 in 0..V-1 or `ignore`, w (V) or NULL: 1. */               \
    /* share[r] = w[t[r]], loss[r] = -(1 - s) w[t[r]] x[r][t[r]] - s / V sum of w[v] x[r][v]; ignored: 0. */      \
    X(nll_rows, (tt_tensor * loss, tt_tensor * share, const tt_tensor *x, const tt_tensor *t, const tt_tensor *w, \
                 const tt__nll *call))                                                                            \
    /* dx[r][v] of g (R). */                                                                                      \
    X(nll_rows_backward,                                                                                          \
      (tt_tensor * dx, const tt_tensor *t, const tt_tensor *w, const tt_tensor *g, const tt__nll *call))

/* ---- convolutions and pooling. Images are (N,C,H,W): N batch, C channels. A call's images (x, y, and what has their
 * shapes) have one memory format, contiguous or channels last, without gaps; other tensors are contiguous. None is
 * empty. */

/* conv2d: x (N,C,H,W), w (K,C/groups,R,S), bias (K) or NULL -> y (N,K,P,Q):
 *   y[n][k][p][q] = bias[k] + sum over c, r, s of x[n][c][p stride - padding + r dilation][..] w[k][c][r][s]
 * conv2d_backward_weight also makes db (K), the sum of g over the other dimensions, unless it is NULL.
 *
 * max_pool2d: x (N,C,H,W) -> y (N,C,P,Q) = the largest of each window, NaN if one is; at (i32, lies like y) = h W + w,
 * its place, the first of equal ones. Each window has an element inside of the image. Backward: dx = 0; then the
 * gradients of windows are added at these places.
 *
 * avg_pool2d: y = the sum of each window, divided by its size: that inside of the padded image, unless the pooling says
 * otherwise. adaptive_avg_pool2d: y = the mean of rows floor(p H / P) .. ceil((p + 1) H / P) - 1, and of columns by the
 * same rule. */
#define TT__CONV_KERNELS(X)                                                                                         \
    X(conv2d, (tt_tensor * y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias, const tt__conv *conv)) \
    X(conv2d_backward_data, (tt_tensor * dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv))         \
    X(conv2d_backward_weight,                                                                                       \
      (tt_tensor * dw, tt_tensor * db, const tt_tensor *x, const tt_tensor *g, const tt__conv *conv))               \
    X(max_pool2d, (tt_tensor * y, tt_tensor * at, const tt_tensor *x, const tt__pooling *pool))                     \
    X(max_pool2d_backward, (tt_tensor * dx, const tt_tensor *g, const tt_tensor *at, const tt__pooling *pool))      \
    X(avg_pool2d, (tt_tensor * y, const tt_tensor *x, const tt__pooling *pool))                                     \
    X(avg_pool2d_backward, (tt_tensor * dx, const tt_tensor *g, const tt__pooling *pool))                           \
    X(adaptive_avg_pool2d, (tt_tensor * y, const tt_tensor *x))                                                     \
    X(adaptive_avg_pool2d_backward, (tt_tensor * dx, const tt_tensor *g))

/* ---- normalisation. Tensors are contiguous and not empty. weight and bias may be NULL (ones, zeros); a gradient that
 * is not wanted is NULL. Means and rstd, 1 / sqrt(variance + eps), are f64. */

/* Batches are seen as (A,C,B): C channels, normalised over A and B; mean and rstd (C).
 * batch_norm_stats: of x, which selects the table. batch_norm_given: of running means and variances (C).
 * batch_norm_running: running += momentum (now - running), where now are the mean and the unbiased variance of `count`
 * elements a channel.
 * batch_norm: y = (x - mean) rstd weight + bias. Backward, by the dtype of n->g: dbias = sum of g, dweight = sum of g
 * (x - mean) rstd, dx = weight rstd (g - [dbias + (x - mean) rstd dweight] / (A B)), without [..] if `fixed`: mean and
 * rstd did not come from x. batch_norm_give: dx alone, where x is a part of what was normalised, `count` elements a
 * channel: sums f64 (2,C) are dbias and dweight over all of these.
 *
 * Rows: x (R,n), mean and rstd (R). row_norm: y = (x - mean) rstd weight + bias. Backward: dbias, dweight as above; dx
 * = rstd (h - mean of h - (x - mean) rstd (mean of h (x - mean) rstd)), h = g weight; no_mean: without the mean of
 * h. */
#define TT__NORM_KERNELS(X)                                                                                          \
    X(batch_norm_stats, (const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd))                          \
    X(batch_norm_given, (const tt_tensor *m, const tt_tensor *var, double eps, tt_tensor *mean, tt_tensor *rstd))    \
    X(batch_norm_running, (tt_tensor * m, tt_tensor * var, const tt_tensor *mean, const tt_tensor *rstd, double eps, \
                           double momentum, int64_t count))                                                          \
    X(batch_norm, (tt_tensor * y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,                  \
                   const tt_tensor *weight, const tt_tensor *bias))                                                  \
    X(batch_norm_backward, (const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw, tt_tensor *db))           \
    X(batch_norm_give, (const tt__normed *n, const tt_tensor *sums, int64_t count, tt_tensor *dx))                   \
    X(row_norm, (tt_tensor * y, tt_tensor * mean, tt_tensor * rstd, const tt_tensor *x, const tt_tensor *weight,     \
                 const tt_tensor *bias, const tt__row_norm *norm))                                                   \
    X(row_norm_backward, (const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw, tt_tensor *db))

/* ---- recurrent cells: see kernels_calls.h for gates and states. Everything is contiguous, but the rows of `gates` may
 * lie further apart. */

/* With a = x + hidden + bias:
 * tanh, relu: y = tanh(a), max(a, 0).
 * LSTM: i, f, o = sigmoid(a), g = tanh(a); c_next = f c + i g; y = o tanh(c_next).
 * GRU: r, z = sigmoid(a); n = tanh(x + r (hidden + bias)); y = n + z (h - n).
 * rnn_cell_backward: dx (B,G H). */
#define TT__RNN_KERNELS(X)                                  \
    X(rnn_cell, (tt_tensor * y, const tt__cell_step *step)) \
    X(rnn_cell_backward, (tt_tensor * dx, const tt__cell_grad *grad))

/* ---- dropout */

/* y is dense: y = x * scale where kept, else 0. The element's number is its place in y's memory. */
#define TT__DROPOUT_KERNELS(X) X(dropout, (tt_tensor * y, const tt_tensor *x, const tt__dropout *call))

/* ---- gradients, f32 and f64, looked through on a device that is not the host. The host has loops of its own
 * (optim/clipping/clip_loop.h, optim/mixed_precision/grad_scaler.c). */

/* Contiguous; the second number is f64, one element, and is joined with what is found in x.
 * grad_measure: total += the sum of |x|^p, p > 0; of an infinite p total = the largest of it and all |x|, NaN being the
 * largest. grad_unscale: found = 1 if an element of x is infinite or NaN; x *= factor. */
#define TT__GRAD_KERNELS(X)                                           \
    X(grad_measure, (const tt_tensor *x, double p, tt_tensor *total)) \
    X(grad_unscale, (tt_tensor * x, double factor, tt_tensor *found))

/* ---- all */

/* X(name, arguments), one line a kernel. */
#define TT__KERNEL_LIST(X)                                                                                           \
    /* y = value, converted; y = x, same shape; y = x, converted from x's dtype. */                                  \
    X(fill, (tt_tensor * y, double value))                                                                           \
    X(copy, (tt_tensor * y, const tt_tensor *x))                                                                     \
    X(convert, (tt_tensor * y, const tt_tensor *x))                                                                  \
    /* y = a + b, a - b, a * b; y = x * factor. One shape; repeated inputs have strides of 0. */                     \
    X(add, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b))                                                  \
    X(sub, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b))                                                  \
    X(mul, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b))                                                  \
    X(scale, (tt_tensor * y, const tt_tensor *x, double factor))                                                     \
    /* y = x < 0 ? 0 : x (NaN stays); dx = y <= 0 ? 0 : g. */                                                        \
    X(relu, (tt_tensor * y, const tt_tensor *x))                                                                     \
    X(relu_backward, (tt_tensor * dx, const tt_tensor *y, const tt_tensor *g))                                       \
    /* y = factor * sum of x, where y has x's shape and strides of 0 along what is summed. Rounded once. */          \
    X(sum, (tt_tensor * y, const tt_tensor *x, double factor))                                                       \
    /* y (M,N) = a (M,K) b (K,N) + beta y; beta 0 or 1. Each has a stride of 1, y the last one. */                   \
    X(matmul, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b, double beta))                                  \
    /* y = a b + bias (N), contiguous; else as matmul. NULL, or TT_ERR_UNSUPPORTED without a recorded error:       \
     * the bias is copied to y's rows, and the product added. */ \
    X(matmul_bias, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias))                   \
    /* y (...,M,N) = a (...,M,K) b (...,K,N); matrices as matmul's, y's don't repeat. NULL, or              \
     * TT_ERR_UNSUPPORTED without a recorded error: they are multiplied one by one. */        \
    X(matmul_batch, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b))                                         \
    /* Contiguous, along the last dimension: y = x - log sum exp x; dx = g - exp(y) * sum of g. */                   \
    X(log_softmax, (tt_tensor * y, const tt_tensor *x))                                                              \
    X(log_softmax_backward, (tt_tensor * dx, const tt_tensor *y, const tt_tensor *g))                                \
    /* Contiguous. loss () = mean over b of log sum[b] - (x[b][t[b]] - max[b]); stats (B,2) = max[b],          \
     * sum[b] = sum of exp(x[b] - max[b]); t (B) i64. dx = (exp(x - max) / sum - [v == t]) * g / B. */     \
    X(cross_entropy, (tt_tensor * loss, tt_tensor * stats, const tt_tensor *x, const tt_tensor *t))                  \
    X(cross_entropy_backward,                                                                                        \
      (tt_tensor * dx, const tt_tensor *x, const tt_tensor *t, const tt_tensor *stats, const tt_tensor *g))          \
    /* Contiguous. loss () = mean over b of -x[b][t[b]]; dx[b][t[b]] = -g / B, else 0. */                            \
    X(nll_loss, (tt_tensor * loss, const tt_tensor *x, const tt_tensor *t))                                          \
    X(nll_loss_backward, (tt_tensor * dx, const tt_tensor *t, const tt_tensor *g))                                   \
    /* Contiguous. loss () = mean of (a - b)^2; da = (a - b) * 2 / n * g, g (). */                                   \
    X(mse_loss, (tt_tensor * loss, const tt_tensor *a, const tt_tensor *b))                                          \
    X(mse_loss_backward, (tt_tensor * da, const tt_tensor *a, const tt_tensor *b, const tt_tensor *g))               \
    /* By the dtype of x: y (i64) = first index of the largest along dimension `dim`, which y lacks. */              \
    X(argmax, (const tt_tensor *x, int dim, tt_tensor *y))                                                           \
    /* Integers. The first element outside low..high: *index (row-major) and *value; *index = -1: none. */           \
    X(find_outside, (const tt_tensor *x, int64_t low, int64_t high, int64_t *index, int64_t *value))                 \
    /* Of devices whose calls don't wait, NULL elsewhere. If an element is outside, and not `but`, the next call */  \
    /* that waits fails with `text` and "[index] = value". Kernels pass over indices and targets out of range: */    \
    /* cross_entropy and nll_loss are means of the other rows. */                                                    \
    X(expect_within, (const tt_tensor *x, int64_t low, int64_t high, int64_t but, const char *text))                 \
    /* Contiguous. Update p by an optimizer's rule: rules/rules.h. The update's pointers are the device's. */        \
    /* TT_ERR_UNSUPPORTED, without a recorded error: the device lacks the rule. */                                   \
    X(step, (tt_tensor * p, tt__optim_rule rule, const tt__update *update))                                          \
    /* The same of some rows of p (V,C): rows (n) i64 are their numbers, each once; g (n,C). */                      \
    X(step_rows, (tt_tensor * p, tt__optim_rule rule, const tt__update *update, const tt_tensor *rows))              \
    /* Families: the lists above. */                                                                                 \
    TT__CONV_KERNELS(X)                                                                                              \
    TT__INDEX_KERNELS(X)                                                                                             \
    TT__POINTWISE_KERNELS(X)                                                                                         \
    TT__REDUCTION_KERNELS(X)                                                                                         \
    TT__NORM_KERNELS(X) TT__LOSS_KERNELS(X) TT__DROPOUT_KERNELS(X) TT__RNN_KERNELS(X) TT__GRAD_KERNELS(X)

#define TT__KERNEL_TYPE(name, arguments) typedef tt_status(*tt__kernel_##name) arguments;
TT__KERNEL_LIST(TT__KERNEL_TYPE)
#undef TT__KERNEL_TYPE

typedef struct tt__kernels {
#define TT__KERNEL_FIELD(name, arguments) tt__kernel_##name name;
    TT__KERNEL_LIST(TT__KERNEL_FIELD)
#undef TT__KERNEL_FIELD
} tt__kernels;

typedef void (*tt__any_kernel)(void);

/* Find the kernel at `offset` in the table of x's device for its dtype, or in its fallback's. NULL: TT_ERR_UNSUPPORTED
 * names `who`, the kernel, dtype and device. */
tt__any_kernel tt__kernel_find(const char *who, const tt_tensor *x, size_t offset, const char *name);

/* tt__kernel_add run = TT__KERNEL(who, y, add); */
#define TT__KERNEL(who, x, name) ((tt__kernel_##name)tt__kernel_find((who), (x), offsetof(tt__kernels, name), #name))

/* The plain loops: oracle, documentation, and the kernels where there are no faster ones. One table for each element
 * type. */
extern const tt__kernels *const tt__reference_kernels[TT__DTYPES];

/* A file of tensor/reference makes each of them: it includes the loops once, with its type. */
extern const tt__kernels tt__reference_f32, tt__reference_f64, tt__reference_f16, tt__reference_bf16, tt__reference_i8,
    tt__reference_i16, tt__reference_i32, tt__reference_i64, tt__reference_u8, tt__reference_bool;

/* Return the elements of a row, where rows lie along the last dimension. */
static inline int64_t tt__row_length(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }

#endif
