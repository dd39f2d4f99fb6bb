/* Operations on images (N,C,H,W), a part of ops.h: shapes are checked by the callers, layouts are any. */
#ifndef TT_TENSOR_OPS_CONV_H
#define TT_TENSOR_OPS_CONV_H

#include "tensor/kernels_conv.h"

/* ---- memory_format.c */

/* Does x lie channels last, by PyTorch's rule for strides? False where its strides say nothing: (N,C,1,1) and (N,1,H,W)
 * lie in the same order either way. */
bool tt__is_channels_last(const tt_tensor *x);

/* Do the elements of x (N,C,H,W) fill a range of memory in this format? Strides of sizes of 1 don't matter. */
bool tt__lies_as(const tt_tensor *x, tt_memory_format format);

/* Choose the format in which a call on both runs: the one both lie in, else channels last if one of them surely
 * does. */
tt_memory_format tt__common_format(const tt_tensor *a, const tt_tensor *b);

/* Make (N,C,H,W) on x's device, of its dtype, in this format. */
tt_tensor *tt__empty_in_format(const char *who, const tt_tensor *x, tt_shape shape, tt_memory_format format);

/* Return x if it lies in this format, else a copy that does, which tt__contiguous_done() frees. */
tt_tensor *tt__in_format_begin(const char *who, const tt_tensor *x, tt_memory_format format);

/* ---- conv.c: see kernels_conv.h */

tt_status tt__conv2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                         const tt__conv *conv);
tt_status tt__conv2d_backward_data_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                       const tt__conv *conv);
/* db may be NULL. */
tt_status tt__conv2d_backward_weight_out(const char *who, tt_tensor *dw, tt_tensor *db, const tt_tensor *x,
                                         const tt_tensor *g, const tt__conv *conv);

#endif
