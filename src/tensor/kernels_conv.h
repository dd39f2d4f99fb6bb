/* Kernels of convolutions: a part of the list in kernels.h. Images are (N,C,H,W): N batch, C channels. A call's images
 * (x, y, and what has their shapes) have one memory format, contiguous or channels last, without gaps; other tensors
 * are contiguous. None is empty. */
#ifndef TT_TENSOR_KERNELS_CONV_H
#define TT_TENSOR_KERNELS_CONV_H

#include "tensor/tensor.h"

/* How a window moves over images: {along H, along W}. */
typedef struct tt__conv {
    int64_t stride[2], padding[2], dilation[2];
    int64_t groups;
} tt__conv;

#define TT__CONV_KERNELS(X)                                                                                         \
    /* x (N,C,H,W), w (K,C/groups,R,S), bias (K) or NULL -> y (N,K,P,Q):                                         \
     * y[n][k][p][q] = bias[k] + sum over c, r, s of x[n][c][p stride - padding + r dilation][...] w[k][c][r][s] */  \
    X(conv2d, (tt_tensor * y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias, const tt__conv *conv)) \
    X(conv2d_backward_data, (tt_tensor * dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv))         \
    /* db (K) = sum of g over the other dimensions, or NULL. */                                                     \
    X(conv2d_backward_weight,                                                                                       \
      (tt_tensor * dw, tt_tensor * db, const tt_tensor *x, const tt_tensor *g, const tt__conv *conv))

#endif
