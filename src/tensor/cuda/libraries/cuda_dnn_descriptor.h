/* Descriptors, which cuDNN is asked with: they are made from attributes and then finalized; and graphs of them. */
#ifndef TT_TENSOR_CUDA_CUDA_DNN_DESCRIPTOR_H
#define TT_TENSOR_CUDA_CUDA_DNN_DESCRIPTOR_H

#include "tensor/cuda/libraries/cuda_cudnn.h"
#include "tensor/device/device.h"

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

/* Make an empty descriptor, which the library fills; or one with n attributes, finalized. After a failure *object is
 * NULL. */
int tt__dnn_create(tt__dnn_use *use, int kind, tt__dnn_object *object);
int tt__dnn_make(tt__dnn_use *use, int kind, int n, const tt__dnn_attribute *attributes, tt__dnn_object *object);

/* Read up to `most` elements of an attribute of a descriptor of this kind; *count: how many there are. */
int tt__dnn_get(tt__dnn_use *use, int kind, tt__dnn_object object, const tt__dnn_attribute *attribute, int64_t *count,
                void *list);

/* End a descriptor; NULL: nothing happens. */
void tt__dnn_end(const tt__dnn_use *use, tt__dnn_object object);

/* cudnnDataType_t of a type of float. */
extern const int tt__dnn_types[TT__DTYPES];

/* Make a descriptor that is part of a graph. */
int tt__dnn_part(tt__dnn_use *use, tt__dnn_graph *graph, int kind, int n, const tt__dnn_attribute *attributes,
                 tt__dnn_object *object);

/* Make the graph itself, of n operations. */
int tt__dnn_graph_of(tt__dnn_use *use, int n, const tt__dnn_object *operations, tt__dnn_graph *graph);

/* End a graph's parts and itself. */
void tt__dnn_graph_end(const tt__dnn_use *use, tt__dnn_graph *graph);

#endif
