/* The kernels that oneDNN runs: see kernels.h for what each does. */
#ifndef TT_TENSOR_CPU_ONEDNN_H
#define TT_TENSOR_CPU_ONEDNN_H

#include "tensor/kernels/kernels.h"

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

/* onednn_conv.c; also of bf16, where TT_ERR_UNSUPPORTED, and no error, is that oneDNN has nothing for it here */
tt_status tt__onednn_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                            const tt__conv *conv);
tt_status tt__onednn_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv);
tt_status tt__onednn_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                            const tt__conv *conv);

#endif
