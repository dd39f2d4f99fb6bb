/* What the two GPTs are: tokens (B,T) become vectors of E numbers, to which those of their positions are added; blocks
 * of attention and of two linear layers add to them; a normalisation and a linear layer make the logits of the next
 * token. They differ in names, in how weights lie, and in options. */
#ifndef TT_MODELS_CAUSAL_LM_H
#define TT_MODELS_CAUSAL_LM_H

#include "models/kv_cache.h"
#include "models/parts.h"

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

#endif
