/* Options of operators that move a window over the last two dimensions of images (N,C,H,W): {along H, along W}. */
#ifndef TT_AUTOGRAD_WINDOW_H
#define TT_AUTOGRAD_WINDOW_H

#include "tensor/core/tensor.h"
#include "tensor/kernels/kernels_calls.h"

/* An option as a caller gives it: one number for both dimensions, or two in `hw`. Zeros: not given. */
typedef struct tt__pair {
    const char *name; /* "stride" */
    int64_t both;
    const int64_t *hw; /* (2) */
    int64_t unset;     /* what it is where it is not given */
    int64_t least;
} tt__pair;

/* Set out[2]. False, and an error that begins with `who`: below `least`, or given both ways. */
bool tt__pair_get(const char *who, const tt__pair *pair, int64_t *out);

/* Return how many windows fit along a dimension; below 1: none. `window`: sizes with dilation; `up`: one that begins
 * inside but ends outside counts (PyTorch: ceil_mode). */
int64_t tt__window_count(int64_t size, int64_t window, int64_t stride, int64_t padding, bool up);

/* Is x (N,C,H,W) with C, H and W at least 1? Else TT_ERR_SHAPE. */
bool tt__check_image(const char *who, const tt_tensor *x);

/* For pooling: set the window by `options` (size, stride, padding, dilation; a stride that is not given is the size),
 * and the shape that x is pooled to. `up`: see tt__window_count(). False, and an error that begins with `who`. */
bool tt__pooling_get(const char *who, const tt_tensor *x, const tt__pair options[4], bool up, tt__pooling *pool,
                     tt_shape *pooled);

#endif
