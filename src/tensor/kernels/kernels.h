/* The kernels of devices: on tensors with strides, without history.
 *
 * A device has one table of these for each element type; an entry may be NULL: then it falls to the device's fallback.
 * Callers have checked the tensors: all of a call lie on the device, shapes are as said here, the first tensor is
 * written and overlaps no other unless it is the same one. The dtype of the first tensor selects the table; all have
 * that dtype unless said otherwise. Kernels record errors and return them (TT_ERR_MEMORY, TT_ERR_SYSTEM). B batch, V
 * classes. "contiguous" is row-major without gaps. */
#ifndef TT_TENSOR_KERNELS_H
#define TT_TENSOR_KERNELS_H

#include "tensor/core/tensor.h"
#include "tensor/kernels/kernels_conv.h"
#include "tensor/kernels/kernels_dropout.h"
#include "tensor/kernels/kernels_grad.h"
#include "tensor/kernels/kernels_index.h"
#include "tensor/kernels/kernels_loss.h"
#include "tensor/kernels/kernels_norm.h"
#include "tensor/kernels/kernels_pointwise.h"
#include "tensor/kernels/kernels_reduction.h"
#include "tensor/kernels/kernels_rnn.h"
#include "tensor/rules/rules.h"

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
    /* ... of p (V,C) rows alone, whose numbers are rows (n) i64, each once; g (n,C). */                             \
    X(step_rows, (tt_tensor * p, tt__optim_rule rule, const tt__update *update, const tt_tensor *rows))              \
    /* Families: kernels_<family>.h. */                                                                              \
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

/* Return the elements of a row, where rows lie along the last dimension. */
static inline int64_t tt__row_length(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }

#endif
