/* Kernels of convolutions: a part of the list in kernels.h. Images are (N,C,H,W): N batch, C channels. A call's images
 * (x, y, and what has their shapes) have one memory format, contiguous or channels last, without gaps; other tensors
 * are contiguous. None is empty. */
#ifndef TT_TENSOR_KERNELS_CONV_H
#define TT_TENSOR_KERNELS_CONV_H

#include <stdbool.h>
#include <stdint.h>

/* How a window moves over images: {along H, along W}. */
typedef struct tt__window {
    int64_t stride[2], padding[2], dilation[2];
} tt__window;

typedef struct tt__conv {
    tt__window window;
    int64_t groups;
} tt__conv;

typedef struct tt__pooling {
    tt__window window;
    int64_t size[2];      /* of the window */
    bool exclude_padding; /* avg_pool2d: divide by the elements inside the image */
    int64_t divisor;      /* avg_pool2d: divide by this; 0: see above */
} tt__pooling;

/* conv2d: x (N,C,H,W), w (K,C/groups,R,S), bias (K) or NULL -> y (N,K,P,Q):
 *   y[n][k][p][q] = bias[k] + sum over c, r, s of x[n][c][p stride - padding + r dilation][..] w[k][c][r][s]
 * conv2d_backward_weight also makes db (K), the sum of g over the other dimensions, unless it is NULL.
 *
 * max_pool2d: x (N,C,H,W) -> y (N,C,P,Q) = the largest of each window, NaN if one is; at (i32, lies like y) = h W + w,
 * its place, the first of equal ones. Each window has an element inside of the image. Backward: dx = 0 but for those
 * places, to which the gradients of their windows are added.
 *
 * avg_pool2d: y = the sum of each window, divided by its size: that inside of the padded image, unless the pooling says
 * otherwise. adaptive_avg_pool2d: y = the mean of rows floor(p H / P) .. ceil((p + 1) H / P) - 1, columns likewise. */
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

#endif
