#include "models/kv_cache.h"

#include "base/error.h"

#include <stdlib.h>

static tt_tensor *new_layer(tt_shape shape, const tt_tensor *like) {
    TT_AUTO_SCOPE;
    return tt_keep(tt_to_device(tt_zeros(shape, tt_tensor_dtype(like)), tt_tensor_device(like)));
}

static bool fill_cache(tt__kv_cache *cache, tt_shape of_layer, const tt_tensor *like) {
    cache->keys = calloc((size_t)cache->layers, sizeof *cache->keys);
    cache->values = calloc((size_t)cache->layers, sizeof *cache->values);
    if (!cache->keys || !cache->values)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for the keys and values of %lld layers",
                             (long long)cache->layers);
    for (int64_t i = 0; i < cache->layers; i++)
        if (!(cache->keys[i] = new_layer(of_layer, like)) || !(cache->values[i] = new_layer(of_layer, like)))
            return false;
    return true;
}

tt__kv_cache *tt__kv_cache_new(int64_t layers, tt_shape of_layer, const tt_tensor *like) {
    tt__kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for keys and values");
    cache->layers = layers;
    cache->room = of_layer.dim[2];
    if (fill_cache(cache, of_layer, like))
        return cache;
    tt__kv_cache_free(cache);
    return NULL;
}

/* Copy `added` behind what is there; return all. */
static tt_tensor *kv_append(const tt__kv_cache *cache, tt_tensor *all, const tt_tensor *added) {
    int64_t n = tt_tensor_size(added, 2);
    tt_tensor *place = tt_narrow(all, 2, cache->used, n);
    return !place || tt_copy(place, added) ? NULL : tt_narrow(all, 2, 0, cache->used + n);
}

tt_status tt__kv_cache_add(tt__kv_cache *cache, int64_t layer, tt_tensor **k, tt_tensor **v) {
    *k = *k ? kv_append(cache, cache->keys[layer], *k) : NULL;
    *v = *v ? kv_append(cache, cache->values[layer], *v) : NULL;
    return *k && *v ? TT_OK : tt_last_status();
}

void tt__kv_cache_free(tt__kv_cache *cache) {
    if (!cache)
        return;
    for (int64_t i = 0; i < cache->layers; i++) {
        if (cache->keys)
            tt_tensor_free(cache->keys[i]);
        if (cache->values)
            tt_tensor_free(cache->values[i]);
    }
    free(cache->keys);
    free(cache->values);
    free(cache);
}
