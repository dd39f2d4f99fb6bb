#include "tensor/cpu/onednn/onednn_cache.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* More kinds of calls than a large model has in both directions. */
enum { KEPT = 512 };

typedef struct kept_primitive {
    const tt__onednn_kind *kind;
    void *primitive;
    uint64_t used; /* when, in calls */
} kept_primitive;

struct tt__onednn_cache {
    dnnl_stream_t stream;
    int n, last; /* last: where the last one was found or added */
    uint64_t calls;
    kept_primitive kept[KEPT];
};

static dnnl_engine_t engine_of_all;
static pthread_key_t onednn_cache_key;
static pthread_once_t onednn_cache_once = PTHREAD_ONCE_INIT;
static dnnl_status_t onednn_cache_ready;

static void onednn_cache_free(void *user) {
    tt__onednn_cache *cache = user;
    for (int i = 0; i < cache->n; i++)
        cache->kept[i].kind->free(cache->kept[i].primitive);
    if (cache->stream)
        tt__onednn_get()->dnnl_stream_destroy(cache->stream);
    free(cache);
}

static void onednn_cache_begin(void) {
    onednn_cache_ready = pthread_key_create(&onednn_cache_key, onednn_cache_free) ? dnnl_out_of_memory : dnnl_success;
    if (!onednn_cache_ready)
        onednn_cache_ready = tt__onednn_get()->dnnl_engine_create(&engine_of_all, dnnl_cpu, 0);
}

dnnl_status_t tt__onednn_cache_get(tt__onednn_cache **cache) {
    pthread_once(&onednn_cache_once, onednn_cache_begin);
    *cache = onednn_cache_ready ? NULL : pthread_getspecific(onednn_cache_key);
    if (onednn_cache_ready || *cache)
        return onednn_cache_ready;
    tt__onednn_cache *made = calloc(1, sizeof *made);
    if (!made)
        return dnnl_out_of_memory;
    dnnl_status_t status =
        tt__onednn_get()->dnnl_stream_create(&made->stream, engine_of_all, dnnl_stream_default_flags);
    if (!status && pthread_setspecific(onednn_cache_key, made))
        status = dnnl_out_of_memory;
    if (status)
        onednn_cache_free(made);
    else
        *cache = made;
    return status;
}

dnnl_engine_t tt__onednn_engine(void) { return engine_of_all; }

dnnl_stream_t tt__onednn_stream(const tt__onednn_cache *cache) { return cache->stream; }

void *tt__onednn_cache_find(tt__onednn_cache *cache, const tt__onednn_kind *kind, const void *key) {
    int at = cache->last;
    for (int i = 0; i < cache->n; i++) {
        at = at + 1 < cache->n ? at + 1 : 0;
        kept_primitive *kept = &cache->kept[at];
        if (kept->kind == kind && !memcmp(kept->primitive, key, kind->key_size)) {
            cache->last = at;
            kept->used = ++cache->calls;
            return kept->primitive;
        }
    }
    return NULL;
}

/* Return the place for one more primitive: a free one, or that of the one unused for longest, which goes. */
static int onednn_cache_place(tt__onednn_cache *cache) {
    if (cache->n < KEPT)
        return cache->n++;
    int oldest = 0;
    for (int i = 1; i < KEPT; i++)
        if (cache->kept[i].used < cache->kept[oldest].used)
            oldest = i;
    cache->kept[oldest].kind->free(cache->kept[oldest].primitive);
    return oldest;
}

void tt__onednn_cache_add(tt__onednn_cache *cache, const tt__onednn_kind *kind, void *primitive) {
    cache->last = onednn_cache_place(cache);
    cache->kept[cache->last] = (kept_primitive){.kind = kind, .primitive = primitive, .used = ++cache->calls};
}
