/* Kernels that reduce dimensions: see kernels.h. */
#ifndef TT_TENSOR_KERNELS_REDUCTION_H
#define TT_TENSOR_KERNELS_REDUCTION_H

#define TT__REDUCTION_KERNELS(X)                                                                                   \
    /* In these five y has x's shape and strides of 0 along what is reduced, n elements. */                        \
    /* y = sum of (x - mean)^2 / (n - correction); the p-norm, p >= 0 or infinite; dx of x, y and g, spread so. */ \
    X(var, (tt_tensor * y, const tt_tensor *x, double correction))                                                 \
    X(norm, (tt_tensor * y, const tt_tensor *x, double p))                                                         \
    X(norm_backward, (tt_tensor * dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g, double p))       \
    /* dx = g, spread so, divided among the elements of x that equal y. */                                         \
    X(share_equal, (tt_tensor * dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g, bool nan_equals))  \
    /* By the dtype of x: y (bool), spread so, = is any, or is each, element not 0? */                             \
    X(any, (const tt_tensor *x, bool all, tt_tensor *y))                                                           \
    /* y = the largest or smallest along `dim`, index (i64) = where the first is; contiguous; both lack dim. */    \
    /* NaN comes before all. dx = g where `index` says, else 0. */                                                 \
    X(extreme, (tt_tensor * y, tt_tensor * index, const tt_tensor *x, int dim, bool largest))                      \
    X(extreme_backward, (tt_tensor * dx, const tt_tensor *index, const tt_tensor *g, int dim))                     \
    /* Contiguous, along the last dimension: y = exp x / sum exp x; dx = y * (g - sum of g * y). */                \
    X(softmax, (tt_tensor * y, const tt_tensor *x))                                                                \
    X(softmax_backward, (tt_tensor * dx, const tt_tensor *y, const tt_tensor *g))

#endif
