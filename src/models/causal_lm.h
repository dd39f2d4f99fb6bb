/* Language models: what the two GPTs share, generating, and GPT-2 before it has values.
 *
 * Tokens (B,T) become vectors of E numbers, and the vectors of their positions are added; blocks of attention and of
 * two linear layers add to them; a normalisation and a linear layer make the logits of the next token. The two differ
 * in names, in the layout of weights, and in options. */
#ifndef TT_MODELS_CAUSAL_LM_H
#define TT_MODELS_CAUSAL_LM_H

#include "models/parts.h"

#include <tutti/models.h>
#include <tutti/tensor.h>

/* Keys and values of the tokens that a text has already. Attention of a new token needs those of all tokens before it.
 * They don't change, so each is computed once. */
typedef struct tt__kv_cache {
    int64_t layers;
    int64_t used;               /* tokens that all layers have; the next ones follow them */
    tt_tensor **keys, **values; /* of each layer: (1,H,S,D), with room for S tokens */
} tt__kv_cache;

typedef struct tt__causal_lm {
    int64_t vocab_size, n_positions, n_embd, n_layer, n_head;
    double embd_dropout, attn_dropout, resid_dropout;
    tt_module *tokens, *positions, *blocks, *norm, *head; /* borrowed: parts of the model */
    tt_tensor *token_weight, *position_weight;
    tt__kv_cache *cache; /* while a text is generated: its cache; forward then has no dropout. Else NULL */
} tt__causal_lm;

/* What a block's module keeps. */
typedef struct tt__lm_block {
    const tt__causal_lm *lm;
    int64_t index;
    bool gelu_tanh;
    tt_module *norm1, *qkv, *out; /* borrowed */
    tt_module *norm2, *up, *down; /* borrowed */
    tt_module *attention, *mlp;   /* borrowed: the two halves, if they are modules; else NULL */
} tt__lm_block;

/* Are the sizes at least 1 and small enough for memory, and does n_head divide n_embd? Else TT_ERR_INVALID. */
tt_status tt__lm_sizes_check(const char *who, const tt__causal_lm *lm);

/* ids i64 (B,T) -> (B,T,E), what the head takes. With a cache the tokens follow those in it, and are added to it.
 * `self` tells whether it is in training mode. */
tt_tensor *tt__lm_hidden(const tt_module *self, const tt__causal_lm *lm, tt_tensor *ids);

/* The whole as a chain: embedding, each block, norm and head. For classes whose user data is a tt__causal_lm. */
int64_t tt__lm_part_count(tt_module *self);
tt_tensor *tt__lm_forward_part(tt_module *self, int64_t part, tt_tensor *x);
tt_module *tt__lm_part_module(tt_module *self, int64_t part, int64_t k);

/* The halves of a block, (B,T,E) -> (B,T,E): out(attention(qkv(x))), and down(gelu(up(x))). */
tt_tensor *tt__lm_attend(const tt_module *self, const tt__lm_block *block, tt_tensor *x);
tt_tensor *tt__lm_feed(const tt_module *self, const tt__lm_block *block, tt_tensor *x);

/* x + branch, in the branch's memory, which no record needs; in new memory if autocast gave branch another type. */
tt_tensor *tt__lm_add(tt_tensor *x, tt_tensor *branch);

/* Make room for so many tokens of H heads with D numbers each, of the dtype and on the device of `like`. NULL: no
 * memory. */
tt__kv_cache *tt__kv_cache_new(int64_t layers, tt_shape of_layer, const tt_tensor *like);

/* NULL is allowed. */
void tt__kv_cache_free(tt__kv_cache *cache);

/* The language model of a module or of what it wraps; NULL and TT_ERR_INVALID if it is none. */
tt__causal_lm *tt__causal_lm_of(const char *who, const tt_module *model);

/* ---- generating: the next token, by the logits of a model ---- */

typedef struct tt__token_choice {
    double temperature; /* 0: the likeliest token */
    int64_t top_k;      /* choose among so many of the likeliest; 0: among all */
    double top_p;       /* ... among the likeliest that together have this probability; 0: among all */
    tt_generator *generator;
} tt__token_choice;

/* Choose from logits of V elements, in any shape; needs an open scope. TT_ERR_NAN if the largest is not a number or
 * infinite. */
tt_status tt__token_choose(int64_t *token, tt_tensor *logits, const tt__token_choice *how);

/* ---- GPT-2 before it has values ---- */

/* Make a model whose matrices are not drawn or loaded yet; `caller` begins errors. */
tt_module *tt__gpt2_new(const char *caller, const tt_model_gpt2_args *a);

/* Read a model's options from a config.json in memory into `a`; other fields stay. `name` stands for the path in
 * errors. TT_ERR_FORMAT: no JSON, or not the numbers that are expected; TT_ERR_UNSUPPORTED: another kind of model, or
 * an option that GPT-2 lacks. */
tt_status tt__gpt2_config_parse(const void *data, size_t size, const char *name, tt_model_gpt2_args *a);

#endif
