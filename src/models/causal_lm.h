/* What the two GPTs are: tokens (B,T) become vectors of E numbers, to which those of their positions are added; blocks
 * of attention and of two linear layers add to them; a normalisation and a linear layer make the logits of the next
 * token. They differ in names, in how weights lie, and in options. */
#ifndef TT_MODELS_CAUSAL_LM_H
#define TT_MODELS_CAUSAL_LM_H

#include "models/parts.h"

#include <tutti/tensor.h>

/* Keys and values of the tokens that a text has already. A new token's attention needs those of all before it, and they
 * don't change, so each is computed once. */
typedef struct tt__kv_cache {
    int64_t layers, room;       /* of each layer, `room` tokens */
    int64_t used;               /* tokens that all layers have; the next ones come behind them */
    tt_tensor **keys, **values; /* of each layer: (1,H,room,D) */
} tt__kv_cache;

typedef struct tt__causal_lm {
    int64_t vocab_size, n_positions, n_embd, n_layer, n_head;
    double embd_dropout, attn_dropout, resid_dropout;
    tt_module *tokens, *positions, *blocks, *norm, *head; /* borrowed: parts of the model */
    tt_tensor *token_weight, *position_weight;
    tt__kv_cache *cache; /* of the text that is being made, whose forward drops nothing; else NULL */
} tt__causal_lm;

/* What a block's module keeps. */
typedef struct tt__lm_block {
    const tt__causal_lm *lm;
    int64_t index;
    bool gelu_tanh;
    tt_module *norm1, *qkv, *out; /* borrowed */
    tt_module *norm2, *up, *down; /* borrowed */
    tt_module *attention, *mlp;   /* borrowed: modules of their own for the two halves, or NULL */
} tt__lm_block;

/* Are the sizes at least 1, of a model that memory could hold, and does n_head divide n_embd? Else TT_ERR_INVALID. */
tt_status tt__lm_sizes_check(const char *who, const tt__causal_lm *lm);

/* ids i64 (B,T) -> (B,T,E), what the head takes. With a cache the tokens come behind those in it, and it has them
 * afterwards. `self` is asked whether it is in training mode. */
tt_tensor *tt__lm_hidden(const tt_module *self, const tt__causal_lm *lm, tt_tensor *ids);

/* The whole as a chain: embedding, each block, norm and head. For classes whose user data is a tt__causal_lm. */
int64_t tt__lm_part_count(tt_module *self);
tt_tensor *tt__lm_forward_part(tt_module *self, int64_t part, tt_tensor *x);
tt_module *tt__lm_part_module(tt_module *self, int64_t part, int64_t k);

/* The halves of a block, (B,T,E) -> (B,T,E): out(attention(qkv(x))), and down(gelu(up(x))). */
tt_tensor *tt__lm_attend(const tt_module *self, const tt__lm_block *block, tt_tensor *x);
tt_tensor *tt__lm_feed(const tt_module *self, const tt__lm_block *block, tt_tensor *x);

/* x + branch, in the branch's memory, which no record needs, unless autocast made its type another one. */
tt_tensor *tt__lm_add(tt_tensor *x, tt_tensor *branch);

/* Make room for so many tokens of H heads with D numbers each, of the dtype and on the device of `like`. NULL: no
 * memory. */
tt__kv_cache *tt__kv_cache_new(int64_t layers, tt_shape of_layer, const tt_tensor *like);

/* NULL is allowed. */
void tt__kv_cache_free(tt__kv_cache *cache);

/* The language model that a module is, also inside a wrapper; NULL and TT_ERR_INVALID if it is none. */
tt__causal_lm *tt__causal_lm_of(const char *who, const tt_module *model);

#endif
