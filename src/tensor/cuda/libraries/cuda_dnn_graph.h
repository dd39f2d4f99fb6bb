/* Graphs that cuDNN is asked for: of the one operation that a convolution is, or of those that attention is made of. */
#ifndef TT_TENSOR_CUDA_CUDA_DNN_GRAPH_H
#define TT_TENSOR_CUDA_CUDA_DNN_GRAPH_H

#include "tensor/cuda/libraries/cuda_dnn_descriptor.h"

/* What is made: of a convolution y, the gradient of x, or that of w; of an attention y and stats, or all gradients. */
typedef enum tt__dnn_direction {
    TT__DNN_MAKES_Y,
    TT__DNN_MAKES_DX,
    TT__DNN_MAKES_DW,
    TT__DNN_ATTENDS,
    TT__DNN_ATTENDS_BACK
} tt__dnn_direction;

/* The matrices of an attention, and how many of them forward has. */
enum { TT__DNN_Q, TT__DNN_K, TT__DNN_V, TT__DNN_O, TT__DNN_G, TT__DNN_DQ, TT__DNN_DK, TT__DNN_DV, TT__DNN_MATRICES };
enum { TT__DNN_MATRICES_FORWARD = TT__DNN_O + 1 };

/* B batches of H heads: q (B,H,T,D), k (B,H,S,D), v (B,H,S,Dv), o (B,H,T,Dv), and gradients of these shapes. A row's
 * elements lie beside each other; `step` has the strides of the first three dimensions, in elements. */
typedef struct tt__dnn_heads {
    int64_t B, H, T, S, D, Dv, causal;
    int64_t step[TT__DNN_MATRICES][3];
} tt__dnn_heads;

/* All that a plan depends on; of pointers it is the alignment. No gaps: keys are compared as bytes. What an operation
 * has no use for is 0. */
typedef struct tt__dnn_key {
    int64_t direction, dtype;
    int64_t channels_last;
    int64_t x[4], y[4], w[4];
    int64_t stride[2], padding[2], dilation[2];
    int64_t alignment[3]; /* of x, y, w */
    tt__dnn_heads heads;
} tt__dnn_key;

/* The tensors' names, which a call's pointers are given by. Matrix m of an attention is named TT__DNN_MATRIX + m. */
enum {
    TT__DNN_MATRIX = 1,
    TT__DNN_X = 'x',
    TT__DNN_Y = 'y',
    TT__DNN_W = 'w',
    TT__DNN_SUMS = 's',  /* (B,H,T): of each row, log of the sum of exp of its scores */
    TT__DNN_MEANS = 'm', /* (B,H,T): of each row, g.y */
    TT__DNN_SCALE = 'c',
    TT__DNN_HIDDEN = 'h', /* what a score becomes that a row doesn't see */
    TT__DNN_ONE = '1'
};

/* Describe attention: cuda_dnn_attention_graph.c. */
int tt__dnn_attention_graph(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph);

/* Describe what the key says. After a failure, too, the parts are to be ended. */
int tt__dnn_graph_begin(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph);

#endif
