/* Keys and values of the tokens that a text has already: a new token's attention needs those of all before it, and they
 * don't change, so each is computed once. */
#ifndef TT_MODELS_KV_CACHE_H
#define TT_MODELS_KV_CACHE_H

#include <tutti/tensor.h>

typedef struct tt__kv_cache {
    int64_t layers, room;       /* of each layer, `room` tokens */
    int64_t used;               /* tokens that all layers have; the next ones come behind them */
    tt_tensor **keys, **values; /* of each layer: (1,H,room,D) */
} tt__kv_cache;

/* Make room for so many tokens of H heads with D numbers each, of the dtype and on the device of `like`. NULL: no
 * memory. */
tt__kv_cache *tt__kv_cache_new(int64_t layers, tt_shape of_layer, const tt_tensor *like);

/* Put a layer's keys and values (1,H,T,D) behind those that are there; *k and *v become those of all tokens up to
 * them, (1,H,used+T,D). */
tt_status tt__kv_cache_add(tt__kv_cache *cache, int64_t layer, tt_tensor **k, tt_tensor **v);

/* NULL is allowed. */
void tt__kv_cache_free(tt__kv_cache *cache);

#endif
