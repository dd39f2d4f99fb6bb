/* Convolutions and attention by cuDNN. f32 is multiplied in f32 (no TF32), f64 in f64, 16-bit floats in f32. Only
 * engines are used that give the same bits each time and add up nothing but what a window sees: no FFT, no Winograd. */
#ifndef TT_TENSOR_CUDA_CUDA_DNN_H
#define TT_TENSOR_CUDA_CUDA_DNN_H

#include "tensor/cuda/device/cuda_state.h"
#include "tensor/cuda/libraries/cuda_dnn_graph.h"
#include "tensor/kernels/kernels_calls.h"

/* x (N,C,H,W), y (N,K,P,Q), w (K,C/groups,R,S), or their gradients. w is contiguous; x and y are, too, or both have
 * their channels last. There are as many groups as the channels of x and w say. */
typedef struct tt__dnn_call {
    tt__dnn_direction direction;
    tt_dtype dtype;
    bool channels_last;
    int64_t x_dim[4], y_dim[4], w_dim[4];
    void *x, *y, *w;
    tt__window window;
} tt__dnn_call;

typedef struct tt__dnn_attention {
    bool backward;
    tt_dtype dtype;
    tt__dnn_heads heads;
    void *matrix[TT__DNN_MATRICES];
    float *stats; /* (B,H,T,2): as in tensor/reference/attention_loops.h; forward writes, backward reads */
    float scale;
} tt__dnn_attention;

/* Enqueue a convolution. TT_ERR_UNSUPPORTED, without a recorded error: cuDNN is not used or doesn't take this one. */
tt_status tt__dnn_convolve(tt__cuda_state *state, const tt__dnn_call *call);

/* Enqueue attention, as above. */
tt_status tt__dnn_attend(tt__cuda_state *state, const tt__dnn_attention *call);

#endif
