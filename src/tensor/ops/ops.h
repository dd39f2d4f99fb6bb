/* Operations on tensors without history: they check devices, spread shapes, find the kernel, run it. Dtypes and shapes
 * are checked by their callers (autograd/op_*.c) unless said otherwise. The result `y` exists; these functions handle
 * one that is not dense, or in another layout than a kernel takes. Errors are recorded and begin with `who`. Nothing
 * here touches a storage's version: callers that write over old values do. */
#ifndef TT_TENSOR_OPS_H
#define TT_TENSOR_OPS_H

#include "tensor/core/tensor.h"
#include "tensor/kernels/kernels.h"
#include "tensor/shape/memory_format.h"

/* ---- making (make.c, copy.c) */

/* Make a tensor on x's device: in x's layout (dense, in x's order of dimensions) / contiguous, of another shape and
 * dtype. */
tt_tensor *tt__empty_like(const char *who, const tt_tensor *x);
tt_tensor *tt__empty_beside(const char *who, const tt_tensor *x, tt_shape shape, tt_dtype dtype);

/* Copy x in its layout / contiguous / to another dtype. */
tt_tensor *tt__clone(const char *who, const tt_tensor *x);
tt_tensor *tt__clone_contiguous(const char *who, const tt_tensor *x);
tt_tensor *tt__to(const char *who, const tt_tensor *x, tt_dtype dtype);
tt_tensor *tt__to_device(const char *who, const tt_tensor *x, const tt_device *device);

/* Return x, or a contiguous copy of it that tt__contiguous_done() frees. */
tt_tensor *tt__contiguous_begin(const char *who, const tt_tensor *x);
void tt__contiguous_done(tt_tensor *copy, const tt_tensor *x);

/* y := x: shapes equal; dtype and device may differ. y := value. */
tt_status tt__copy_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__fill_out(const char *who, tt_tensor *y, double value);

/* ---- views (view.c): arguments are checked */

tt_tensor *tt__view(const char *who, const tt_tensor *x, tt_shape shape); /* one size may be -1 */
tt_tensor *tt__reshape(const char *who, const tt_tensor *x, tt_shape shape);
tt_tensor *tt__transpose(const char *who, const tt_tensor *x, int a, int b);
tt_tensor *tt__narrow(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t length);

/* Dimension k of the result is dimension dims->dim[k] of x (negative: from the end), each once. */
tt_tensor *tt__permute(const char *who, const tt_tensor *x, const tt_shape *dims);

/* x repeated to `shape` by strides of 0; a size of -1 stays as it is in x. */
tt_tensor *tt__expand(const char *who, const tt_tensor *x, tt_shape shape);

/* Entry `index` (negative: from the end) of dimension `dim`, which the result lacks. */
tt_tensor *tt__select(const char *who, const tt_tensor *x, int dim, int64_t index);

/* Every `step`th entry of dimension `dim` from `start` to before `end`. Both are clamped to the dimension, after
 * negative ones are counted from its end. */
tt_tensor *tt__slice(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step);

/* Without dimensions of size 1: all (`dim` NULL), or *dim if it is one / with a new one at `dim` of the result. */
tt_tensor *tt__squeeze(const char *who, const tt_tensor *x, const int *dim);
tt_tensor *tt__unsqueeze(const char *who, const tt_tensor *x, int dim);

/* ---- cat.c: new tensors, in the first one's order of memory; all of one dtype on one device, or an error */

/* One after the other along `dim` / side by side, with `dim` as a new dimension of the result. */
tt_tensor *tt__cat(const char *who, int n, tt_tensor *const *x, int dim);
tt_tensor *tt__stack(const char *who, int n, tt_tensor *const *x, int dim);

/* ---- devices */

/* Do all lie on one device? Else TT_ERR_INVALID names both. NULLs among them are skipped. */
bool tt__same_device(const char *who, int n, const tt_tensor *const *tensors);
#define TT__SAME_DEVICE(who, ...)                                                                 \
    tt__same_device(who, (int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                    (const tt_tensor *[]){__VA_ARGS__})

/* ---- element by element (elementwise.c): inputs are spread to the shape of what is written */

tt_status tt__add_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__sub_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__mul_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__scale_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__relu_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__relu_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

tt_status tt__unary_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__unary *call);
tt_status tt__unary_backward_out(const char *who, tt_tensor *dx, const tt_tensor *v, const tt_tensor *g,
                                 const tt__unary *call);

/* x and z are spread to the shape of y / of g and d. */
tt_status tt__binary_op_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *z,
                            const tt__binary *call);
tt_status tt__binary_backward_out(const char *who, tt_tensor *d, const tt_tensor *x, const tt_tensor *z,
                                  const tt_tensor *g, const tt__binary *call, int input);

/* See kernels.h; y is dense. */
tt_status tt__dropout_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__dropout *call);

/* a and b are spread to the shape of y, bools. */
tt_status tt__compare_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, tt__comparison op);

/* condition, a and b are spread to y's shape. */
tt_status tt__where_out(const char *who, tt_tensor *y, const tt_tensor *condition, const tt_tensor *a,
                        const tt_tensor *b);

/* y := value where mask is `when`, else x; both are spread to y's shape. */
tt_status tt__masked_fill_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when,
                              double value);

/* Is `mask`, called `name`, alive, bool, and on x's device? */
bool tt__check_mask(const char *who, const char *name, const tt_tensor *mask, const tt_tensor *x);

/* Are a and b alive, of the same dtype and on the same device? Else false, and an error. */
bool tt__check_alike(const char *who, const tt_tensor *a, const tt_tensor *b);

/* Can the element type hold the value, exactly where it is an integer? */
bool tt__dtype_holds(tt_dtype dtype, double value);

/* ---- reductions (reduction.c) */

/* y := factor * x, summed along the dimensions in which y would be repeated to get x's shape. */
tt_status tt__sum_to_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor);

/* Which dimensions of a tensor are reduced, and what becomes of them. */
typedef struct tt__reduction {
    unsigned dims; /* bit d: dimension d is reduced */
    bool keepdim;  /* reduced dimensions stay, with size 1 */
    int64_t count; /* how many elements become one */
} tt__reduction;

/* Read which dimensions are reduced; none given: all. TT_ERR_SHAPE: x lacks one, or one is given twice; TT_ERR_INVALID:
 * an impossible number of them. */
tt_status tt__reduction_of(const char *who, tt__reduction *r, const tt_tensor *x, const tt_dims *dims, bool keepdim);

/* Make the result: x's shape without what is reduced, on its device, contiguous. */
tt_tensor *tt__reduction_result(const char *who, const tt_tensor *x, const tt__reduction *r, tt_dtype dtype);

/* Make a tensor of indices (i64) of the shape of y, a result. */
tt_tensor *tt__index_like(const char *who, const tt_tensor *y);

/* View y, a result or its gradient, of any layout, spread over the shape of what was reduced. */
tt_tensor tt__reduction_spread(const tt_tensor *y, const tt__reduction *r, const tt_shape *shape);

/* y as tt__reduction_spread() gives it. y := factor * sum of x; the variance; the p-norm, and its gradient. */
tt_status tt__sum_spread_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__var_out(const char *who, tt_tensor *y, const tt_tensor *x, double correction);
tt_status tt__norm_out(const char *who, tt_tensor *y, const tt_tensor *x, double p);
tt_status tt__norm_backward_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                                const tt_tensor *g, double p);

/* See kernels.h; y and index are contiguous; of share_equal y and g are spread as above. */
tt_status tt__extreme_out(const char *who, tt_tensor *y, tt_tensor *index, const tt_tensor *x, int dim, bool largest);
tt_status tt__extreme_backward_out(const char *who, tt_tensor *dx, const tt_tensor *index, const tt_tensor *g, int dim);
tt_status tt__share_equal_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                              const tt_tensor *g, bool nan_equals);

/* Any layout, along the last dimension. */
tt_status tt__softmax_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__softmax_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

/* ---- indexing and order (index.c): any layout. Indices are i64 on x's device */

/* Find the first element of x, integers, outside of low..high; *index = -1: none. */
tt_status tt__find_outside_out(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t *index,
                               int64_t *value);

/* Are all elements of x, integers, within low..high, or `but`? Else TT_ERR_INVALID with `text`, which says what was
 * expected and ends with the name of x; the first element that is not follows. A device whose calls don't wait may
 * report it later; until then, kernels that read x as indices pass over such elements. */
tt_status tt__check_within(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t but,
                           const char *text);

/* Does x's device report that later? */
bool tt__checks_later(const tt_tensor *x);

/* Find the first NaN of x, floats, in row-major order; -1: there is none, or no memory to look. Slow. */
int64_t tt__find_nan(const char *who, const tt_tensor *x);

/* Make a tensor of indices beside x, with undefined values. */
tt_tensor *tt__make_places(const char *who, const tt_tensor *x, tt_shape shape);

/* Are all of index places of dimension `dim` of x? Else an error names the first that is not. */
tt_status tt__check_index(const char *who, const tt_tensor *x, int dim, const tt_tensor *index);

/* As tt__check_index(); also: do the dimensions of x, index and src (NULL: none) fit a gather or scatter, and have x
 * and src one dtype? */
bool tt__check_places(const char *who, const tt_tensor *x, int dim, const tt_tensor *index, const tt_tensor *src);

tt_status tt__index_select_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__index_add_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__gather_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__scatter_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__scatter_add_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);

tt_status tt__triangle_out(const char *who, tt_tensor *y, const tt_tensor *x, int64_t diagonal, bool upper);
tt_status tt__cumsum_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, bool backwards);

/* Sort along `dim`, and keep as many of the first entries as y and indices have, which are contiguous. */
tt_status tt__sort_out(const char *who, tt_tensor *y, tt_tensor *indices, const tt_tensor *x, int dim, bool descending);

/* ---- matmul.c: y (M,N) := a (M,K) b (K,N) + beta y; any layout */

tt_status tt__matmul_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

/* y := a b + bias (N), repeated for each row. */
tt_status tt__matmul_bias_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b,
                              const tt_tensor *bias);

/* y (...,M,N) = a (...,M,K) b (...,K,N) for each matrix of the batch (...), which all three have; one that is repeated
 * has strides of 0 there, and where y is, it is the sum. The rows of y's matrices have a stride of 1. */
tt_status tt__bmm_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);

/* View matrix number i of a batch, in row-major order / count them. */
tt_tensor tt__matrix_number(const tt_tensor *x, int64_t i);
int64_t tt__batch_size(const tt_tensor *x);

/* View x (rows, cols) as its transpose. */
tt_tensor tt__transposed(const tt_tensor *x);

/* View x (..., C), contiguous, as (rows, C). */
tt_tensor tt__as_rows(const tt_tensor *x);

/* ---- softmax and losses (loss.c): any layout */

tt_status tt__log_softmax_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__log_softmax_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cross_entropy_out(const char *who, tt_tensor *loss, tt_tensor *stats, const tt_tensor *x,
                                const tt_tensor *t);
tt_status tt__cross_entropy_backward_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                         const tt_tensor *stats, const tt_tensor *g);
tt_status tt__nll_loss_out(const char *who, tt_tensor *loss, const tt_tensor *x, const tt_tensor *t);
tt_status tt__nll_loss_backward_out(const char *who, tt_tensor *dx, const tt_tensor *t, const tt_tensor *g);
tt_status tt__mse_loss_out(const char *who, tt_tensor *loss, const tt_tensor *a, const tt_tensor *b);
tt_status tt__mse_loss_backward_out(const char *who, tt_tensor *da, const tt_tensor *a, const tt_tensor *b,
                                    const tt_tensor *g);

/* `loss` and `share` (R) are contiguous. */
tt_status tt__nll_rows_out(const char *who, tt_tensor *loss, tt_tensor *share, const tt_tensor *x, const tt_tensor *t,
                           const tt_tensor *w, const tt__nll *call);
tt_status tt__nll_rows_backward_out(const char *who, tt_tensor *dx, const tt_tensor *t, const tt_tensor *w,
                                    const tt_tensor *g, const tt__nll *call);

/* Are all targets within 0..V-1, or `ignore`? Else TT_ERR_INVALID names the first that is not. *ignored: some are
 * `ignore`, where the kernels of cross_entropy and nll_loss don't pass over them. */
tt_status tt__check_classes(const char *who, const tt_tensor *target, int64_t V, int64_t ignore, bool *ignored);

/* ---- images (images.c): shapes are checked by the callers, layouts are any */

/* Make (N,C,H,W) on x's device in this format. */
tt_tensor *tt__empty_in_format(const char *who, const tt_tensor *x, tt_shape shape, tt_dtype dtype,
                               tt_memory_format format);

tt_status tt__conv2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                         const tt__conv *conv);
tt_status tt__conv2d_backward_data_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                       const tt__conv *conv);
/* db may be NULL. */
tt_status tt__conv2d_backward_weight_out(const char *who, tt_tensor *dw, tt_tensor *db, const tt_tensor *x,
                                         const tt_tensor *g, const tt__conv *conv);

/* Make the tensor for the places that max_pool2d finds, with x pooled to `shape`. */
tt_tensor *tt__pool_places_beside(const char *who, const tt_tensor *x, tt_shape shape, tt_memory_format format);
tt_status tt__max_pool2d_out(const char *who, tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__max_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                      const tt__pooling *pool);
tt_status tt__avg_pool2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__avg_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt__pooling *pool);
tt_status tt__adaptive_avg_pool2d_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__adaptive_avg_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g);

/* Make y of another height and width, in x's order of memory. */
tt_tensor *tt__empty_resized(const char *who, const tt_tensor *x, int64_t H, int64_t W);

tt_status tt__resize_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__resize *how);
tt_status tt__resize_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt__resize *how);

/* ---- normalisation (norm.c): shapes are checked by the callers, layouts are any */

/* Make the means, or the rstd, of `count` channels or rows, on x's device. */
tt_tensor *tt__norm_stats_beside(const char *who, const tt_tensor *x, int64_t count);

/* Return the distance from 1 to the next number in the type that a float type is computed in (f32 for 16 bits): the
 * default eps of rms_norm. */
double tt__dtype_epsilon(tt_dtype dtype);

/* x (N,C,...); mean and rstd f64 (C). */
tt_status tt__batch_norm_stats_out(const char *who, const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd);
tt_status tt__batch_norm_given_out(const char *who, const tt_tensor *m, const tt_tensor *var, double eps,
                                   tt_tensor *mean, tt_tensor *rstd);
/* Change m and var in place, and note that in their storages. */
tt_status tt__batch_norm_running_(const char *who, tt_tensor *m, tt_tensor *var, const tt_tensor *mean,
                                  const tt_tensor *rstd, double eps, double momentum, int64_t count);
tt_status tt__batch_norm_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mean,
                             const tt_tensor *rstd, const tt_tensor *weight, const tt_tensor *bias);
tt_status tt__batch_norm_backward_out(const char *who, const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw,
                                      tt_tensor *db);
/* The gradient of x, which is a part of what was normalised together, `count` elements a channel; sums: f64 (2,C). */
tt_status tt__batch_norm_give_out(const char *who, const tt__normed *n, const tt_tensor *sums, int64_t count,
                                  tt_tensor *dx);

/* x of any shape, seen as one row for each element of mean and rstd. */
tt_status tt__row_norm_out(const char *who, tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                           const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm);
tt_status tt__row_norm_backward_out(const char *who, const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx,
                                    tt_tensor *dw, tt_tensor *db);

/* ---- attention (attention.c): batches of matrices, floats; any layout, y and stats contiguous */

/* Make the room for what backward needs of each row of q. */
tt_tensor *tt__attention_stats(const char *who, const tt_tensor *q);

/* Return a mask to add to scores, in the type that they have for q: of a bool mask, 0 where it is true, else -infinity.
 * The mask itself, or a new one that tt__contiguous_done() frees. */
tt_tensor *tt__additive_mask(const char *who, const tt_tensor *mask, const tt_tensor *q);

/* Is backward faster with in->y? Devices with fused kernels of 16-bit floats read it. */
bool tt__attention_keeps_y(const tt__attention *in);

tt_status tt__attention_out(const char *who, tt_tensor *y, tt_tensor *stats, const tt__attention *in);

/* d: of q, k, v; NULL: not wanted. */
tt_status tt__attention_backward_out(const char *who, tt_tensor *const d[3], const tt_tensor *stats, const tt_tensor *g,
                                     const tt__attention *in);

/* ---- recurrent layers over time (recurrence.c). T steps, B sequences, H hidden values, G gates: see
 * kernels_calls.h */

/* One layer in one direction. Everything is contiguous, on one device, of one dtype; T at least 1. */
typedef struct tt__rnn {
    tt__cell cell;
    bool reverse;             /* the last step comes first */
    const tt_tensor *x;       /* (T,B,G H): the input's part of the gates, with its bias */
    const tt_tensor *h0, *c0; /* (B,H): the state before; c0: of an LSTM */
    const tt_tensor *weight;  /* (G H,H): from a state to the hidden part */
    const tt_tensor *bias;    /* (G H) or NULL: zeros */
    tt_tensor *y;             /* (T,B,H) */
    tt_tensor *gates;         /* (T,B,4 H): what backward reads; of LSTM and GRU, else NULL */
    tt_tensor *c;             /* (T,B,H): of an LSTM, else NULL */
} tt__rnn;

/* The gradients that backward reads and writes. */
typedef struct tt__rnn_grads {
    const tt_tensor *g; /* (T,B,H): of y */
    tt_tensor *dh, *dc; /* (B,H): of the last state, from outside; they become those of h0 and c0. dc: of an LSTM */
    tt_tensor *dx;      /* (T,B,G H) */
    tt_tensor *dhidden; /* (T,B,3 H): of the hidden parts, of a GRU; else NULL */
} tt__rnn_grads;

/* How many gates the cell has. */
static inline int64_t tt__cell_gates(tt__cell cell) { return cell == TT__CELL_LSTM ? 4 : cell == TT__CELL_GRU ? 3 : 1; }

/* Compute y, gates and c / dx, dhidden, dh and dc, a product and a kernel for each step. */
tt_status tt__rnn_out(const char *who, const tt__rnn *r);
tt_status tt__rnn_backward_out(const char *who, const tt__rnn *r, const tt__rnn_grads *d);

/* dweight (G H,H) = what tt__rnn_backward_out() wrote, times the states before each step, in one product for all
 * steps. */
tt_status tt__rnn_weight_out(const char *who, tt_tensor *dweight, const tt__rnn *r, const tt__rnn_grads *d);

/* View step t of x (T,B,C) as (B,C). */
tt_tensor tt__time_step(const tt_tensor *x, int64_t t);

/* ---- some rows of a matrix (sparse_rows.c): their numbers (n) i64, ascending, each once, and their values (n, C). On
 * a device that is not the host the calls read the numbers, and so wait for it; values stay there. */

/* Sum gradients of the same row: index (N) i64 and g (N, C), contiguous, become *rows (n), ascending, each once, and
 * *values (n, C), where values[k] is the sum, in the order of i, of all g[i] whose index[i] is rows[k]. Row `skipped`
 * is left out; -1: none. Both are new tensors of the scope. */
tt_status tt__rows_coalesce(const char *who, const tt_tensor *index, const tt_tensor *g, int64_t skipped,
                            tt_tensor **rows, tt_tensor **values);

/* Add *rows and *values to had_rows and had. *rows and *values become new tensors with the union of the rows; a row of
 * both is had's plus the other. */
tt_status tt__rows_add(const char *who, const tt_tensor *had_rows, const tt_tensor *had, tt_tensor **rows,
                       tt_tensor **values);

#endif
