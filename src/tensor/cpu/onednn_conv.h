/* One convolution by oneDNN, in one of its three directions. */
#ifndef TT_TENSOR_CPU_ONEDNN_CONV_H
#define TT_TENSOR_CPU_ONEDNN_CONV_H

#include "tensor/cpu/onednn_version.h"
#include "tensor/kernels.h"

/* A convolution's tensors; `bias` may be NULL. The one that `direction` says is written. */
typedef struct tt__conv_call {
    tt__conv_direction direction;
    const tt_tensor *x, *w, *bias, *y;
    const tt__conv *conv;
} tt__conv_call;

/* Run it. TT_ERR_UNSUPPORTED, and no error: oneDNN has nothing for bf16 here. */
tt_status tt__onednn_conv_run(const tt__conv_call *c);

#endif
