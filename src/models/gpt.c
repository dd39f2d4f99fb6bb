/* A small GPT as PyTorch's layers spell it: Linear for all products, gelu by erf, a head of its own. */
#include "base/args.h"
#include "models/causal_lm.h"

#include <tutti/models.h>

static const char who[] = "tt_model_gpt";

static tt_tensor *gpt_block_forward(tt_module *self, tt_tensor *x) {
    const tt__lm_block *b = tt_module_user(self);
    x = tt__lm_add(x, tt__lm_attend(self, b, tt_module_forward(b->norm1, x)));
    return tt__lm_add(x, tt__lm_feed(self, b, tt_module_forward(b->norm2, x)));
}

static const tt_module_class gpt_block_class =
    TT_MODULE_CLASS(.name = "Block", .forward = gpt_block_forward, .destroy = tt__layer_destroy);

static tt_tensor *gpt_forward(tt_module *self, tt_tensor *ids) {
    const tt__causal_lm *lm = tt_module_user(self);
    return tt_module_forward(lm->head, tt__lm_hidden(self, lm, ids));
}

static const tt_module_class gpt_class =
    TT_MODULE_CLASS(.name = "GPT", .forward = gpt_forward, .destroy = tt__layer_destroy,
                    .part_count = tt__lm_part_count, .forward_part = tt__lm_forward_part,
                    .part_module = tt__lm_part_module);

/* ---- making ---- */

static tt_module *gpt_linear(const tt_model_gpt_args *a, int64_t in, int64_t out) {
    return tt_nn_linear(in, out, .generator = a->generator, .dtype = a->dtype);
}

static tt_module *gpt_norm(const tt_model_gpt_args *a) {
    return tt_nn_layer_norm(TT_SHAPE(a->n_embd), .dtype = a->dtype);
}

static tt_module *gpt_embedding(const tt_model_gpt_args *a, int64_t count) {
    return tt_nn_embedding(count, a->n_embd, .generator = a->generator, .dtype = a->dtype);
}

static tt_status gpt_block_build(tt_module *self, const tt_model_gpt_args *a) {
    tt__lm_block *b = tt_module_user(self);
    int64_t E = a->n_embd;
    TT__TRY(tt__add_part(&b->norm1, self, "l1", gpt_norm(a)));
    TT__TRY(tt__add_part(&b->norm2, self, "l2", gpt_norm(a)));
    TT__TRY(tt__add_part(&b->qkv, self, "qkv", gpt_linear(a, E, 3 * E)));
    TT__TRY(tt__add_part(&b->out, self, "o", gpt_linear(a, E, E)));
    TT__TRY(tt__add_part(&b->up, self, "f", gpt_linear(a, E, 4 * E)));
    return tt__add_part(&b->down, self, "g", gpt_linear(a, 4 * E, E));
}

static tt_module *gpt_block(const tt__causal_lm *lm, int64_t index, const tt_model_gpt_args *a) {
    tt_module *self = tt__layer_new(who, &gpt_block_class, sizeof(tt__lm_block));
    tt__lm_block *b = tt_module_user(self);
    if (!b)
        return NULL;
    b->lm = lm;
    b->index = index;
    return tt__layer_made(self, gpt_block_build(self, a));
}

static tt_status gpt_build(tt_module *self, const tt_model_gpt_args *a) {
    tt__causal_lm *lm = tt_module_user(self);
    TT__TRY(tt__add_part(&lm->tokens, self, "e", gpt_embedding(a, a->vocab_size)));
    TT__TRY(tt__add_part(&lm->positions, self, "p", gpt_embedding(a, a->block_size)));
    TT__TRY(tt__add_part(&lm->blocks, self, "b", tt__empty_sequential()));
    for (int64_t i = 0; i < a->n_layer; i++)
        TT__TRY(tt__add_numbered(lm->blocks, gpt_block(lm, i, a)));
    TT__TRY(tt__add_part(&lm->norm, self, "l", gpt_norm(a)));
    TT__TRY(tt__add_part(
        &lm->head, self, "head",
        tt_nn_linear(a->n_embd, a->vocab_size, .no_bias = true, .generator = a->generator, .dtype = a->dtype)));
    lm->token_weight = tt_named_tensors_find(tt_module_parameters(lm->tokens), "weight");
    lm->position_weight = tt_named_tensors_find(tt_module_parameters(lm->positions), "weight");
    return lm->token_weight && lm->position_weight ? TT_OK : tt_last_status();
}

tt_module *tt_model_gpt_with(const tt_model_gpt_args *args, size_t size) {
    tt_model_gpt_args a;
    TT__ARGS_COPY(a, args, size);
    const tt__causal_lm sizes = {
        .vocab_size = a.vocab_size,
        .n_positions = a.block_size,
        .n_embd = a.n_embd,
        .n_layer = a.n_layer,
        .n_head = a.n_head,
        .embd_dropout = a.dropout,
        .attn_dropout = a.dropout,
        .resid_dropout = a.dropout,
    };
    if (tt__lm_sizes_check(who, &sizes) || tt__layer_dtype_check(who, a.dtype))
        return NULL;
    tt_module *self = tt__layer_new(who, &gpt_class, sizeof(tt__causal_lm));
    if (!self)
        return NULL;
    *(tt__causal_lm *)tt_module_user(self) = sizes;
    return tt__model_made(who, self, gpt_build(self, &a));
}
