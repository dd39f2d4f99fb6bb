/* oneDNN's library. The first call that needs it loads it: that takes 2 ms, twice as long as a process takes to start
 * without it, and many never multiply a matrix. */
#ifndef TT_TENSOR_CPU_ONEDNN_LIBRARY_H
#define TT_TENSOR_CPU_ONEDNN_LIBRARY_H

#include <tutti/base.h>

#include <dnnl.h>
#include <stddef.h>

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

/* Those that one version has and the other lacks. */
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

/* ---- what versions 2 and 3 spell differently: descriptions of memory, of products, of convolutions */

/* A memory description that we own, and one as oneDNN's functions take it. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t tt__onednn_memory;
typedef const_dnnl_memory_desc_t tt__onednn_memory_ref;
#define TT__ONEDNN_REF(memory) (memory)
#else
typedef dnnl_memory_desc_t tt__onednn_memory;
typedef const dnnl_memory_desc_t *tt__onednn_memory_ref;
#define TT__ONEDNN_REF(memory) (&(memory))
#endif

/* Describe memory with these strides, in elements; NULL: oneDNN chooses. */
dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, dnnl_data_type_t type, int ndims, const int64_t *dims,
                                     const int64_t *stride);

/* Free a description; zeros are allowed. */
void tt__onednn_memory_free(tt__onednn_memory *memory);

/* What is added to a product: nothing, y's old values, or a bias. */
typedef enum tt__product_adds { TT__ADDS_NOTHING, TT__ADDS_TO_Y, TT__ADDS_BIAS } tt__product_adds;

/* Describe the product m[2] = m[0] m[1], plus the bias m[3] if `adds` says so. The caller gives scratchpads. */
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

/* ---- primitives of a thread, found by the bytes of their key. Not shared: no lock. Freed when the thread ends */

/* One kind of primitives. Each begins with its key. Keys are compared byte by byte, so they must be zeroed before they
 * are filled. */
typedef struct tt__onednn_kind {
    size_t key_size;
    void (*free)(void *primitive);
} tt__onednn_kind;

typedef struct tt__onednn_cache tt__onednn_cache;

/* Set *cache to this thread's, made by its first call. Once it is there, so is the engine. */
dnnl_status_t tt__onednn_cache_get(tt__onednn_cache **cache);

/* The engine that all primitives are of / the thread's stream. */
dnnl_engine_t tt__onednn_engine(void);
dnnl_stream_t tt__onednn_stream(const tt__onednn_cache *cache);

/* Find a primitive; NULL: none has this key. The search begins behind the last one that was found or added: a step's
 * calls follow each other in the order they were made. */
void *tt__onednn_cache_find(tt__onednn_cache *cache, const tt__onednn_kind *kind, const void *key);

/* Keep a primitive, which the cache owns from now on. In a full cache the one unused for longest makes room. */
void tt__onednn_cache_add(tt__onednn_cache *cache, const tt__onednn_kind *kind, void *primitive);

#endif
