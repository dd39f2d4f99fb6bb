/* What oneDNN's versions 2 and 3 spell differently: descriptions of memory, and how a convolution is described. */
#ifndef TT_TENSOR_CPU_ONEDNN_VERSION_H
#define TT_TENSOR_CPU_ONEDNN_VERSION_H

#include "tensor/cpu/onednn/onednn_load.h"

/* A description of memory of our own, and one as functions take it. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t tt__onednn_memory;
typedef const_dnnl_memory_desc_t tt__onednn_memory_ref;
#define TT__ONEDNN_REF(memory) (memory)
#else
typedef dnnl_memory_desc_t tt__onednn_memory;
typedef const dnnl_memory_desc_t *tt__onednn_memory_ref;
#define TT__ONEDNN_REF(memory) (&(memory))
#endif

/* Describe memory with these strides, in elements; NULL: as oneDNN likes it best. */
dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, dnnl_data_type_t type, int ndims, const int64_t *dims,
                                     const int64_t *stride);

/* Free a description; zeros are allowed. */
void tt__onednn_memory_free(tt__onednn_memory *memory);

/* What is added to a product: nothing, what is there, or a bias. */
typedef enum tt__product_adds { TT__ADDS_NOTHING, TT__ADDS_TO_Y, TT__ADDS_BIAS } tt__product_adds;

/* Describe the product m[2] = m[0] m[1], where `adds` says so with the bias m[3], with scratchpads of the caller's. */
dnnl_status_t tt__onednn_product_describe(dnnl_primitive_desc_t *made, const tt__onednn_memory *m,
                                          tt__product_adds adds, dnnl_engine_t engine);

/* The three directions of a convolution. */
typedef enum tt__conv_direction { TT__CONV_FORWARD, TT__CONV_DATA, TT__CONV_WEIGHT } tt__conv_direction;

typedef struct tt__onednn_conv {
    tt__conv_direction direction;
    bool bias, winograd;                   /* winograd: where oneDNN has such a kernel */
    dnnl_dims_t stride, dilation, padding; /* dilation: 0 is dense */
    tt__onednn_memory x, w, b, y;          /* or the gradients in their places */
} tt__onednn_conv;

dnnl_status_t tt__onednn_conv_describe(dnnl_primitive_desc_t *made, const tt__onednn_conv *conv, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr);

#endif
