/* One convolution by oneDNN, in one of its three directions. */
#ifndef TT_TENSOR_CPU_ONEDNN_CONV_H
#define TT_TENSOR_CPU_ONEDNN_CONV_H

#include "tensor/cpu/onednn/onednn_library.h"
#include "tensor/kernels/kernels.h"

/* A convolution's tensors; `bias` may be NULL. `direction` says which one is written; `count` images from `first` on
 * take part. */
typedef struct tt__conv_call {
    tt__conv_direction direction;
    const tt_tensor *x, *w, *bias, *y;
    const tt__conv *conv;
    int64_t first, count;
    float *dw, *db; /* where gradients of weight and bias go; dw NULL: into w and bias */
} tt__conv_call;

/* Run it. TT_ERR_UNSUPPORTED, and no error: oneDNN has nothing for bf16 here. */
tt_status tt__onednn_conv_run(const tt__conv_call *c);

#endif
