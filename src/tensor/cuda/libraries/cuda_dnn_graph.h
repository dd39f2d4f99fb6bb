/* Graphs of operations that are described to cuDNN (one operation for a convolution, many for attention), and its plans
 * for them. */
#ifndef TT_TENSOR_CUDA_LIBRARIES_CUDA_DNN_GRAPH_H
#define TT_TENSOR_CUDA_LIBRARIES_CUDA_DNN_GRAPH_H

#include "tensor/cuda/libraries/cuda_cudnn.h"
#include "tensor/device/device.h"

/* ---- descriptors, which cuDNN is asked with: made from attributes, then finalized */

/* The library on a device. Functions below return cudnnStatus_t; after a failure the last two say what failed. */
typedef struct tt__dnn_use {
    const tt__dnn *dnn;
    tt__dnn_object handle;
    cudaStream_t stream;           /* the handle's: the device's, or, while a graph is captured, that of the capture */
    const char *function, *object; /* "cudnnBackendFinalize", "a tensor" */
} tt__dnn_use;

typedef struct tt__dnn_attribute {
    int name, type;
    int64_t count;
    const void *list;
} tt__dnn_attribute;

/* A graph and what it is made of: 69 parts for the gradients of causal attention. */
enum { TT__DNN_GRAPH_PARTS = 80 };
typedef struct tt__dnn_graph {
    tt__dnn_object graph;
    int count;
    tt__dnn_object part[TT__DNN_GRAPH_PARTS];
} tt__dnn_graph;

/* cudnnDataType_t of a type of float. */
extern const int tt__dnn_types[TT__DTYPES];

/* Make an empty descriptor, which the library fills; or one with n attributes, finalized. After a failure *object is
 * NULL. */
int tt__dnn_create(tt__dnn_use *use, int kind, tt__dnn_object *object);
int tt__dnn_make(tt__dnn_use *use, int kind, int n, const tt__dnn_attribute *attributes, tt__dnn_object *object);

/* Read up to `most` elements of an attribute of a descriptor of this kind; *count: how many there are. */
int tt__dnn_get(tt__dnn_use *use, int kind, tt__dnn_object object, const tt__dnn_attribute *attribute, int64_t *count,
                void *list);

/* End a descriptor; NULL: nothing happens. */
void tt__dnn_end(const tt__dnn_use *use, tt__dnn_object object);

/* Make a descriptor that is part of a graph. */
int tt__dnn_part(tt__dnn_use *use, tt__dnn_graph *graph, int kind, int n, const tt__dnn_attribute *attributes,
                 tt__dnn_object *object);

/* Make the graph itself, of n operations. */
int tt__dnn_graph_of(tt__dnn_use *use, int n, const tt__dnn_object *operations, tt__dnn_graph *graph);

/* End a graph's parts and itself. */
void tt__dnn_graph_end(const tt__dnn_use *use, tt__dnn_graph *graph);

/* ---- what a graph computes */

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

/* All that a plan depends on; of pointers that is their alignment. No gaps: keys are compared as bytes. What an
 * operation doesn't use is 0. */
typedef struct tt__dnn_key {
    int64_t direction, dtype;
    int64_t channels_last;
    int64_t x[4], y[4], w[4];
    int64_t stride[2], padding[2], dilation[2];
    int64_t alignment[3]; /* of x, y, w */
    tt__dnn_heads heads;
} tt__dnn_key;

/* The tensors' names, by which a call gives its pointers. Matrix m of an attention is named TT__DNN_MATRIX + m. */
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

/* ---- plans, kept for calls of the same sizes, layout and type */

typedef struct tt__dnn_plan {
    tt__dnn_key key;
    uint64_t used;               /* number of the call that used it last; 0: there is no plan here */
    bool refused;                /* cuDNN has no plan that may be used */
    tt__dnn_object config, plan; /* the plan reads its engine's configuration */
    size_t workspace;
} tt__dnn_plan;

/* A key's plan is in one row. In a full row the least recently used plan is replaced. */
enum { TT__DNN_ROWS = 64, TT__DNN_PLANS_IN_ROW = 4 };

typedef struct tt__dnn_plans {
    tt__dnn_use use;
    uint64_t calls;
    tt__dnn_plan plan[TT__DNN_ROWS][TT__DNN_PLANS_IN_ROW];
} tt__dnn_plans;

/* Find the plan for a key, or make it; it is good until the next call. Not thread-safe. The result is cudnnStatus_t,
 * and plans->use then says what failed. */
int tt__dnn_plan_for(tt__dnn_plans *plans, const tt__dnn_key *key, tt__dnn_plan **plan);

#endif
