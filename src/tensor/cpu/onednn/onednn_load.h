/* oneDNN's library, loaded by the first call that needs it: that takes 2 ms, twice as long as a process takes to start
 * without it, and many never multiply a matrix. */
#ifndef TT_TENSOR_CPU_ONEDNN_LOAD_H
#define TT_TENSOR_CPU_ONEDNN_LOAD_H

#include <tutti/base.h>

#include <dnnl.h>

/* The functions that are used. Types and constants come from its header. */
#define TT__ONEDNN_FUNCTIONS(X)                \
    X(dnnl_sgemm)                              \
    X(dnnl_engine_create)                      \
    X(dnnl_stream_create)                      \
    X(dnnl_stream_wait)                        \
    X(dnnl_stream_destroy)                     \
    X(dnnl_memory_create)                      \
    X(dnnl_memory_destroy)                     \
    X(dnnl_memory_set_data_handle)             \
    X(dnnl_memory_desc_equal)                  \
    X(dnnl_memory_desc_get_size)               \
    X(dnnl_primitive_attr_create)              \
    X(dnnl_primitive_attr_destroy)             \
    X(dnnl_primitive_attr_set_scratchpad_mode) \
    X(dnnl_primitive_attr_set_post_ops)        \
    X(dnnl_post_ops_create)                    \
    X(dnnl_post_ops_destroy)                   \
    X(dnnl_post_ops_append_sum)                \
    X(dnnl_primitive_desc_query_md)            \
    X(dnnl_primitive_desc_destroy)             \
    X(dnnl_primitive_create)                   \
    X(dnnl_primitive_execute)                  \
    X(dnnl_primitive_destroy)                  \
    X(dnnl_reorder_primitive_desc_create)      \
    TT__ONEDNN_VERSION_FUNCTIONS(X)

/* Those of which a version has its own: see onednn_version.c. */
#if DNNL_VERSION_MAJOR >= 3
#define TT__ONEDNN_VERSION_FUNCTIONS(X)                     \
    X(dnnl_memory_desc_create_with_strides)                 \
    X(dnnl_memory_desc_create_with_tag)                     \
    X(dnnl_memory_desc_destroy)                             \
    X(dnnl_matmul_primitive_desc_create)                    \
    X(dnnl_convolution_forward_primitive_desc_create)       \
    X(dnnl_convolution_backward_data_primitive_desc_create) \
    X(dnnl_convolution_backward_weights_primitive_desc_create)
#else
#define TT__ONEDNN_VERSION_FUNCTIONS(X)                 \
    X(dnnl_memory_desc_init_by_strides)                 \
    X(dnnl_memory_desc_init_by_tag)                     \
    X(dnnl_primitive_desc_create)                       \
    X(dnnl_matmul_desc_init)                            \
    X(dnnl_dilated_convolution_forward_desc_init)       \
    X(dnnl_dilated_convolution_backward_data_desc_init) \
    X(dnnl_dilated_convolution_backward_weights_desc_init)
#endif

typedef struct tt__onednn {
#define TT__ONEDNN_FIELD(name) __typeof__(name) *name;
    TT__ONEDNN_FUNCTIONS(TT__ONEDNN_FIELD)
#undef TT__ONEDNN_FIELD
} tt__onednn;

/* Return its functions; NULL and TT_ERR_UNSUPPORTED where there is no oneDNN of the version that Tutti was built for.
 * Cheap once it is loaded. Thread-safe. */
const tt__onednn *tt__onednn_get(void);

#endif
