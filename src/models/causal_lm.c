/* What the two GPTs share: attention with a cache of keys and values, blocks, the chain of parts, checks of sizes. */
#include "models/causal_lm.h"

#include "base/error.h"

#include "nn/module.h"

#include <math.h>
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

/* Append a layer's keys and values (1,H,T,D) to the cache; *k and *v become those of all tokens so far,
 * (1,H,used+T,D). */
static tt_status kv_cache_add(tt__kv_cache *cache, int64_t layer, tt_tensor **k, tt_tensor **v) {
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

static tt_tensor *lm_drop(const tt_module *self, const tt__causal_lm *lm, tt_tensor *x, double p) {
    return lm->cache ? x : tt__drop(self, x, p);
}

/* ---- attention: q, k, v (B,H,T,D), E = H D ---- */

/* Attention with dropout of the weights, which the fused operator lacks: all weights (B,H,T,T) are in memory. */
static tt_tensor *attention_dropped(const tt_module *self, tt_tensor *q, tt_tensor *k, tt_tensor *v, double p) {
    int64_t T = tt_tensor_size(q, 2);
    double scale = 1 / sqrt((double)tt_tensor_size(q, 3));
    tt_tensor *later = tt_to_device(tt_triu(tt_ones(TT_SHAPE(T, T), TT_BOOL), 1), tt_tensor_device(q));
    tt_tensor *scores = tt_masked_fill(tt_scale(tt_matmul(q, tt_transpose(k, 2, 3)), scale), later, -INFINITY);
    return tt_matmul(tt__drop(self, tt_softmax(scores, 3), p), v);
}

/* (B,T,E) -> (B,H,T,D) */
static tt_tensor *split_qkv_heads(const tt__causal_lm *lm, tt_tensor *x) {
    tt_shape shape = tt_tensor_shape(x);
    return tt_transpose(tt_reshape(x, TT_SHAPE(shape.dim[0], shape.dim[1], lm->n_head, lm->n_embd / lm->n_head)), 1, 2);
}

/* qkv (B,T,3E) -> (B,T,E) */
static tt_tensor *causal_attention(const tt_module *self, const tt__lm_block *block, tt_tensor *qkv) {
    const tt__causal_lm *lm = block->lm;
    tt_tensor *part[3] = {NULL};
    if (!qkv || tt_chunk(part, 3, qkv, -1))
        return NULL;
    tt_tensor *q = split_qkv_heads(lm, part[0]), *k = split_qkv_heads(lm, part[1]), *v = split_qkv_heads(lm, part[2]),
              *y;
    bool first = !lm->cache || !lm->cache->used; /* later tokens come one at a time and see all before them */
    if (lm->cache && kv_cache_add(lm->cache, block->index, &k, &v))
        return NULL;
    if (!lm->cache && lm->attn_dropout > 0 && tt_module_training(self))
        y = attention_dropped(self, q, k, v, lm->attn_dropout);
    else
        y = tt_scaled_dot_product_attention(q, k, v, .is_causal = first);
    return tt_reshape(tt_transpose(y, 1, 2), TT_SHAPE(tt_tensor_size(qkv, 0), tt_tensor_size(qkv, 1), lm->n_embd));
}

/* ---- blocks ---- */

tt_tensor *tt__lm_attend(const tt_module *self, const tt__lm_block *block, tt_tensor *x) {
    tt_tensor *y = causal_attention(self, block, tt_module_forward(block->qkv, x));
    return lm_drop(self, block->lm, tt_module_forward(block->out, y), block->lm->resid_dropout);
}

tt_tensor *tt__lm_add(tt_tensor *x, tt_tensor *branch) {
    bool alike = x && branch && tt_tensor_dtype(x) == tt_tensor_dtype(branch);
    return alike ? tt_add_(branch, x) : tt_add(x, branch);
}

tt_tensor *tt__lm_feed(const tt_module *self, const tt__lm_block *block, tt_tensor *x) {
    tt_tensor *y = tt_gelu(tt_module_forward(block->up, x), .tanh = block->gelu_tanh);
    return lm_drop(self, block->lm, tt_module_forward(block->down, y), block->lm->resid_dropout);
}

/* ids i64 (B,T) -> (B,T,E), what the blocks take. */
static tt_tensor *lm_embed(const tt_module *self, const tt__causal_lm *lm, tt_tensor *ids) {
    int64_t used = lm->cache ? lm->cache->used : 0, T = tt_tensor_size(ids, 1);
    if (!ids)
        return NULL;
    if (tt_tensor_dim(ids) != 2)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected tokens i64 (B, T), got %s", tt_module_class_name(self),
                               TT__DESCRIBE(ids));
    if (T > lm->n_positions - used)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected at most %lld tokens, as there are positions, got %s",
                               tt_module_class_name(self), (long long)(lm->n_positions - used), TT__DESCRIBE(ids));
    tt_tensor *x = tt_add(tt_module_forward(lm->tokens, ids), tt_narrow(lm->position_weight, 0, used, T));
    return lm_drop(self, lm, x, lm->embd_dropout);
}

tt_tensor *tt__lm_hidden(const tt_module *self, const tt__causal_lm *lm, tt_tensor *ids) {
    tt_tensor *x = tt_module_forward(lm->blocks, lm_embed(self, lm, ids));
    if (x && lm->cache)
        lm->cache->used += tt_tensor_size(ids, 1);
    return tt_module_forward(lm->norm, x);
}

/* ---- as a chain ---- */

int64_t tt__lm_part_count(tt_module *self) { return ((const tt__causal_lm *)tt_module_user(self))->n_layer + 2; }

tt_tensor *tt__lm_forward_part(tt_module *self, int64_t part, tt_tensor *x) {
    const tt__causal_lm *lm = tt_module_user(self);
    if (part == 0)
        return lm_embed(self, lm, x);
    if (part <= lm->n_layer)
        return tt_module_forward(tt_module_child_at(lm->blocks, part - 1), x);
    return tt_module_forward(lm->head, tt_module_forward(lm->norm, x));
}

tt_module *tt__lm_part_module(tt_module *self, int64_t part, int64_t k) {
    const tt__causal_lm *lm = tt_module_user(self);
    if (part > 0 && part <= lm->n_layer)
        return k == 0 ? tt_module_child_at(lm->blocks, part - 1) : NULL;
    if (k > 1)
        return NULL;
    return part == 0 ? (k ? lm->positions : lm->tokens) : (k ? lm->head : lm->norm);
}

/* ---- checks ---- */

/* A number from a broken config.json must not fill the memory. */
enum { LM_MOST_LAYERS = 1000 };

tt_status tt__lm_sizes_check(const char *who, const tt__causal_lm *lm) {
    double E = (double)lm->n_embd, most = (double)(INT64_MAX / 64); /* elements: their bytes are far from an overflow */
    if (lm->vocab_size < 1 || lm->n_positions < 1 || lm->n_embd < 1 || lm->n_layer < 1 || lm->n_head < 1)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected sizes of at least 1, got vocabulary %lld, positions %lld, n_embd %lld, n_layer "
                        "%lld, n_head %lld",
                        who, (long long)lm->vocab_size, (long long)lm->n_positions, (long long)lm->n_embd,
                        (long long)lm->n_layer, (long long)lm->n_head);
    if (lm->n_embd % lm->n_head)
        return tt__fail(TT_ERR_INVALID, "%s: expected n_head to divide n_embd %lld, got %lld", who,
                        (long long)lm->n_embd, (long long)lm->n_head);
    if (((double)lm->vocab_size + (double)lm->n_positions + 12 * E * (double)lm->n_layer) * E > most)
        return tt__fail(TT_ERR_INVALID, "%s: the model would have more than %.3g parameters", who, most);
    if (lm->n_layer > LM_MOST_LAYERS)
        return tt__fail(TT_ERR_INVALID, "%s: expected n_layer of at most %d, got %lld", who, LM_MOST_LAYERS,
                        (long long)lm->n_layer);
    TT__TRY(tt__dropout_check(who, "dropout of embeddings", lm->embd_dropout));
    TT__TRY(tt__dropout_check(who, "dropout of attention", lm->attn_dropout));
    return tt__dropout_check(who, "dropout of residuals", lm->resid_dropout);
}

/* ---- knowing one ---- */

tt__causal_lm *tt__causal_lm_of(const char *who, const tt_module *model) {
    const tt_module *inner = tt__module_unwrapped(model);
    if (inner && inner->cls.part_count == tt__lm_part_count)
        return tt_module_user(inner);
    if (!inner)
        tt__fail_argument("%s: the model is NULL", who);
    else
        tt__fail_null(TT_ERR_INVALID, "%s: expected a model of tt_model_gpt() or tt_model_gpt2(), got a %s", who,
                      tt_module_class_name(inner));
    return NULL;
}
