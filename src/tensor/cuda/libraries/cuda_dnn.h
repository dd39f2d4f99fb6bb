/* Convolutions and attention by cuDNN. f32 is multiplied in f32 (no TF32), f64 in f64, 16-bit floats in f32. Only
 * engines are used that give the same bits each time and add up nothing but what a window sees: no FFT, no Winograd. */
#ifndef TT_TENSOR_CUDA_CUDA_DNN_H
#define TT_TENSOR_CUDA_CUDA_DNN_H

#include "tensor/cuda/device/cuda_state.h"
#include "tensor/kernels/kernels_conv.h"

/* What is made: of a convolution y, the gradient of x, or that of w; of an attention y and stats, or all gradients. */
typedef enum tt__dnn_direction {
    TT__DNN_MAKES_Y,
    TT__DNN_MAKES_DX,
    TT__DNN_MAKES_DW,
    TT__DNN_ATTENDS,
    TT__DNN_ATTENDS_BACK
} tt__dnn_direction;

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

/* The matrices of an attention, and how many of them forward has. */
enum { TT__DNN_Q, TT__DNN_K, TT__DNN_V, TT__DNN_O, TT__DNN_G, TT__DNN_DQ, TT__DNN_DK, TT__DNN_DV, TT__DNN_MATRICES };
enum { TT__DNN_MATRICES_FORWARD = TT__DNN_O + 1 };

/* B batches of H heads: q (B,H,T,D), k (B,H,S,D), v (B,H,S,Dv), o (B,H,T,Dv), and gradients of these shapes. A row's
 * elements lie beside each other; `step` has the strides of the first three dimensions, in elements. */
typedef struct tt__dnn_heads {
    int64_t B, H, T, S, D, Dv, causal;
    int64_t step[TT__DNN_MATRICES][3];
} tt__dnn_heads;

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
