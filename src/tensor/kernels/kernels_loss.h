/* Kernels of losses: see kernels.h. R rows, V classes. */
#ifndef TT_TENSOR_KERNELS_LOSS_H
#define TT_TENSOR_KERNELS_LOSS_H

#include <stdint.h>

/* Options of the negative log likelihood. */
typedef struct tt__nll {
    int64_t ignore;   /* rows whose target is this one cost nothing */
    double smoothing; /* this share of the target is divided among all classes */
} tt__nll;

#define TT__LOSS_KERNELS(X)                                                                                       \
    /* Contiguous. x (R,V) log probabilities, t (R) i64 in 0..V-1 or `ignore`, w (V) or NULL: 1. */               \
    /* share[r] = w[t[r]], loss[r] = -(1 - s) w[t[r]] x[r][t[r]] - s / V sum of w[v] x[r][v]; ignored: 0. */      \
    X(nll_rows, (tt_tensor * loss, tt_tensor * share, const tt_tensor *x, const tt_tensor *t, const tt_tensor *w, \
                 const tt__nll *call))                                                                            \
    /* dx[r][v] of g (R). */                                                                                      \
    X(nll_rows_backward,                                                                                          \
      (tt_tensor * dx, const tt_tensor *t, const tt_tensor *w, const tt_tensor *g, const tt__nll *call))

#endif
