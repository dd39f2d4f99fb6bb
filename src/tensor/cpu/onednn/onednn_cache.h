/* Primitives of a thread, found by the bytes of their key. Not shared: no lock. Freed when the thread ends. */
#ifndef TT_TENSOR_CPU_ONEDNN_CACHE_H
#define TT_TENSOR_CPU_ONEDNN_CACHE_H

#include "tensor/cpu/onednn/onednn_load.h"

#include <stddef.h>

/* One kind of primitives. Each begins with its key, which is compared byte by byte, so made from zeros. */
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

/* Keep a primitive, which is the cache's from now on. In a full cache the one unused for longest makes room. */
void tt__onednn_cache_add(tt__onednn_cache *cache, const tt__onednn_kind *kind, void *primitive);

#endif
