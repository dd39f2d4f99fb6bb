/* Operations on images (N,C,H,W), a part of ops.h: shapes are checked by the callers, layouts are any. */
#ifndef TT_TENSOR_OPS_CONV_H
#define TT_TENSOR_OPS_CONV_H

#include "tensor/kernels/kernels_conv.h"
#include "tensor/shape/memory_format.h"

/* ---- staged.c */

/* Make (N,C,H,W) on x's device in this format. */
tt_tensor *tt__empty_in_format(const char *who, const tt_tensor *x, tt_shape shape, tt_dtype dtype,
                               tt_memory_format format);

/* ---- conv.c: see kernels_conv.h */

tt_status tt__conv2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                         const tt__conv *conv);
tt_status tt__conv2d_backward_data_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                       const tt__conv *conv);
/* db may be NULL. */
tt_status tt__conv2d_backward_weight_out(const char *who, tt_tensor *dw, tt_tensor *db, const tt_tensor *x,
                                         const tt_tensor *g, const tt__conv *conv);

/* ---- pooling.c: see kernels_conv.h */

/* Make what takes the places of max_pool2d, for x pooled to `shape`. */
tt_tensor *tt__pool_places_beside(const char *who, const tt_tensor *x, tt_shape shape, tt_memory_format format);
tt_status tt__max_pool2d_out(const char *who, tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__max_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                      const tt__pooling *pool);
tt_status tt__avg_pool2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__avg_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt__pooling *pool);
tt_status tt__adaptive_avg_pool2d_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__adaptive_avg_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g);

#endif
