/* Operations on tensors without history: they check devices, spread shapes, find the kernel, run it. Dtypes and shapes
 * are checked by their callers (autograd/op_*.c) unless said otherwise. The result `y` exists; these functions handle
 * one that is not dense, or in another layout than a kernel takes. Errors are recorded and begin with `who`. Nothing
 * here touches a storage's version: callers that write over old values do. */
#ifndef TT_TENSOR_OPS_H
#define TT_TENSOR_OPS_H

#include "tensor/kernels/kernels.h"
#include "tensor/ops/ops_conv.h"
#include "tensor/ops/ops_index.h"
#include "tensor/ops/ops_loss.h"
#include "tensor/ops/ops_norm.h"
#include "tensor/ops/ops_pointwise.h"
#include "tensor/ops/ops_reduction.h"
#include "tensor/ops/ops_rnn.h"
#include "tensor/ops/ops_selection.h"

/* ---- making (make.c, copy.c) */

/* Make a tensor on x's device: in x's layout (dense, in x's order of dimensions); of another shape and dtype,
 * contiguous. */
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

/* ---- views (view.c) */

tt_tensor *tt__view(const char *who, const tt_tensor *x, tt_shape shape); /* one size may be -1 */
tt_tensor *tt__reshape(const char *who, const tt_tensor *x, tt_shape shape);
tt_tensor *tt__transpose(const char *who, const tt_tensor *x, int a, int b);
tt_tensor *tt__narrow(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t length);

/* ---- elementwise.c: a and b are spread to y's shape */

/* View x as it is repeated to y's shape: its strides are 0 there. */
tt_tensor tt__spread(const tt_tensor *x, const tt_tensor *y);

tt_status tt__add_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__sub_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__mul_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__scale_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__relu_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__relu_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

/* ---- reduce.c */

/* y := factor * x, summed along the dimensions in which y would be repeated to get x's shape. */
tt_status tt__sum_to_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor);

/* By the dtype of x; see tt_argmax(). */
tt_status tt__argmax_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim);

/* Find the first element of x, integers, outside of low..high; *index = -1: none. */
tt_status tt__find_outside_out(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t *index,
                               int64_t *value);

/* Are all elements of x, integers, within low..high, or `but`? Else TT_ERR_INVALID with `text`, which says what was
 * expected and ends with the name of x; the first element that is not follows. A device whose calls don't wait may tell
 * it later: then a kernel that reads x as indices passes over this one. */
tt_status tt__check_within(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t but,
                           const char *text);

/* Does x's device tell so later? */
bool tt__checks_later(const tt_tensor *x);

/* Find the first NaN of x, floats, in row-major order; -1: there is none, or no memory to look. Slow. */
int64_t tt__find_nan(const char *who, const tt_tensor *x);

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

/* ---- softmax.c, loss.c: see kernels.h; any layout */

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

/* ---- */

/* Do all lie on one device? Else TT_ERR_INVALID names both. NULLs among them are skipped. */
bool tt__same_device(const char *who, int n, const tt_tensor *const *tensors);
#define TT__SAME_DEVICE(who, ...)                                                                 \
    tt__same_device(who, (int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                    (const tt_tensor *[]){__VA_ARGS__})

#endif
