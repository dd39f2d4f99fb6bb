/* GPT-2 (Radford et al., 2019) under Hugging Face's names. Its products are "Conv1D" layers, whose weights are (in,
 * out), and its head is the table of tokens again. */

#include "base/args.h"
#include "base/text/parse.h"
#include "models/causal_lm.h"
#include "nn/module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_model_gpt2";

/* ---- layers ---- */

typedef struct conv1d_layer {
    tt_tensor *weight, *bias; /* borrowed from the module; the head has no bias */
} conv1d_layer;

/* x (...,in), weight (in,out), bias (out) -> (...,out) */
static tt_tensor *gpt2_conv1d_forward(tt_module *self, tt_tensor *x) {
    const conv1d_layer *l = tt_module_user(self);
    return tt_linear(x, tt_transpose(l->weight, 0, 1), l->bias);
}

static const tt_module_class gpt2_conv1d_class =
    TT_MODULE_CLASS(.name = "Conv1D", .forward = gpt2_conv1d_forward, .destroy = tt__layer_destroy);

/* Make a Conv1D layer. Its weights are drawn once the model is complete. */
static tt_module *gpt2_conv1d(const tt_model_gpt2_args *a, int64_t in, int64_t out) {
    tt_module *self = tt__layer_new(who, &gpt2_conv1d_class, sizeof(conv1d_layer));
    conv1d_layer *l = tt_module_user(self);
    if (!l)
        return NULL;
    tt_status status = tt__add_filled(self, who, "weight", TT_SHAPE(in, out), a->dtype, 0, &l->weight);
    if (!status)
        status = tt__add_filled(self, who, "bias", TT_SHAPE(out), a->dtype, 0, &l->bias);
    return tt__layer_made(self, status);
}

static tt_tensor *tied_head_forward(tt_module *self, tt_tensor *x) {
    const conv1d_layer *l = tt_module_user(self);
    return tt_linear(x, l->weight, NULL);
}

static const tt_module_class tied_head_class =
    TT_MODULE_CLASS(.name = "Linear", .forward = tied_head_forward, .destroy = tt__layer_destroy);

static tt_module *tied_head(tt_tensor *weight) {
    tt_module *self = tt__layer_new(who, &tied_head_class, sizeof(conv1d_layer));
    conv1d_layer *l = tt_module_user(self);
    if (!l)
        return NULL;
    l->weight = weight;
    return tt__layer_made(self, tt_module_register_parameter(self, "weight", weight));
}

static tt_module *gpt2_norm(const tt_model_gpt2_args *a) {
    return tt_nn_layer_norm(TT_SHAPE(a->n_embd), .eps = a->layer_norm_epsilon, .dtype = a->dtype);
}

static tt_module *gpt2_embedding(const tt_model_gpt2_args *a, int64_t count) {
    return tt_nn_embedding(count, a->n_embd, .generator = a->generator, .dtype = a->dtype);
}

/* ---- blocks: their two halves are modules that share the block's tt__lm_block ---- */

static tt_tensor *gpt2_attention_forward(tt_module *self, tt_tensor *x) {
    return tt__lm_attend(self, tt_module_user(self), x);
}

static tt_tensor *gpt2_mlp_forward(tt_module *self, tt_tensor *x) { return tt__lm_feed(self, tt_module_user(self), x); }

static tt_tensor *gpt2_block_forward(tt_module *self, tt_tensor *x) {
    const tt__lm_block *b = tt_module_user(self);
    x = tt__lm_add(x, tt_module_forward(b->attention, tt_module_forward(b->norm1, x)));
    return tt__lm_add(x, tt_module_forward(b->mlp, tt_module_forward(b->norm2, x)));
}

static const tt_module_class gpt2_attention_class =
    TT_MODULE_CLASS(.name = "GPT2Attention", .forward = gpt2_attention_forward);
static const tt_module_class gpt2_mlp_class = TT_MODULE_CLASS(.name = "GPT2MLP", .forward = gpt2_mlp_forward);
static const tt_module_class gpt2_block_class =
    TT_MODULE_CLASS(.name = "GPT2Block", .forward = gpt2_block_forward, .destroy = tt__layer_destroy);

static tt_status gpt2_block_build(tt_module *self, const tt_model_gpt2_args *a) {
    tt__lm_block *b = tt_module_user(self);
    int64_t E = a->n_embd, inner = a->n_inner ? a->n_inner : 4 * E;
    TT__TRY(tt__add_part(&b->norm1, self, "ln_1", gpt2_norm(a)));
    TT__TRY(tt__add_part(&b->attention, self, "attn", tt__module_new(&gpt2_attention_class, b)));
    TT__TRY(tt__add_part(&b->qkv, b->attention, "c_attn", gpt2_conv1d(a, E, 3 * E)));
    TT__TRY(tt__add_part(&b->out, b->attention, "c_proj", gpt2_conv1d(a, E, E)));
    TT__TRY(tt__add_part(&b->norm2, self, "ln_2", gpt2_norm(a)));
    TT__TRY(tt__add_part(&b->mlp, self, "mlp", tt__module_new(&gpt2_mlp_class, b)));
    TT__TRY(tt__add_part(&b->up, b->mlp, "c_fc", gpt2_conv1d(a, E, inner)));
    return tt__add_part(&b->down, b->mlp, "c_proj", gpt2_conv1d(a, inner, E));
}

static tt_module *gpt2_block(const tt__causal_lm *lm, int64_t index, const tt_model_gpt2_args *a) {
    tt_module *self = tt__layer_new(who, &gpt2_block_class, sizeof(tt__lm_block));
    tt__lm_block *b = tt_module_user(self);
    if (!b)
        return NULL;
    b->lm = lm;
    b->index = index;
    b->gelu_tanh = !a->exact_gelu;
    return tt__layer_made(self, gpt2_block_build(self, a));
}

/* ---- the model ---- */

static tt_tensor *gpt2_body_forward(tt_module *self, tt_tensor *ids) {
    return tt__lm_hidden(self, tt_module_user(self), ids);
}

static tt_tensor *gpt2_forward(tt_module *self, tt_tensor *ids) {
    const tt__causal_lm *lm = tt_module_user(self);
    return tt_module_forward(lm->head, tt_module_forward(tt_module_child_at(self, 0), ids));
}

static const tt_module_class gpt2_body_class = TT_MODULE_CLASS(.name = "GPT2Model", .forward = gpt2_body_forward);
static const tt_module_class gpt2_class =
    TT_MODULE_CLASS(.name = "GPT2LMHeadModel", .forward = gpt2_forward, .destroy = tt__layer_destroy,
                    .part_count = tt__lm_part_count, .forward_part = tt__lm_forward_part,
                    .part_module = tt__lm_part_module);

static tt_status gpt2_body_build(tt_module *body, tt__causal_lm *lm, const tt_model_gpt2_args *a) {
    TT__TRY(tt__add_part(&lm->tokens, body, "wte", gpt2_embedding(a, a->vocab_size)));
    TT__TRY(tt__add_part(&lm->positions, body, "wpe", gpt2_embedding(a, a->n_positions)));
    TT__TRY(tt__add_part(&lm->blocks, body, "h", tt__empty_sequential()));
    for (int64_t i = 0; i < a->n_layer; i++)
        TT__TRY(tt__add_numbered(lm->blocks, gpt2_block(lm, i, a)));
    TT__TRY(tt__add_part(&lm->norm, body, "ln_f", gpt2_norm(a)));
    lm->token_weight = tt_named_tensors_find(tt_module_parameters(lm->tokens), "weight");
    lm->position_weight = tt_named_tensors_find(tt_module_parameters(lm->positions), "weight");
    return lm->token_weight && lm->position_weight ? TT_OK : tt_last_status();
}

static tt_status gpt2_build(tt_module *self, const tt_model_gpt2_args *a) {
    tt__causal_lm *lm = tt_module_user(self);
    tt_module *body = NULL;
    TT__TRY(tt__add_part(&body, self, "transformer", tt__module_new(&gpt2_body_class, lm)));
    TT__TRY(gpt2_body_build(body, lm, a));
    return tt__add_part(&lm->head, self, "lm_head",
                        a->no_weight_tying ? tt_nn_linear(a->n_embd, a->vocab_size, .no_bias = true,
                                                          .generator = a->generator, .dtype = a->dtype)
                                           : tied_head(lm->token_weight));
}

/* Draw all matrices: normal with deviation 0.02; those that end a residual branch are divided by the square root of the
 * number of branches. */
static tt_status gpt2_draw(tt_module *self, const tt_model_gpt2_args *a) {
    const tt_named_tensors *all = tt_module_parameters(self);
    for (int64_t i = 0; all && i < all->count; i++) {
        bool residual = strstr(all->names[i], ".c_proj.");
        double deviation = 0.02 / (residual ? sqrt(2 * (double)a->n_layer) : 1);
        if (tt_tensor_dim(all->tensors[i]) == 2)
            TT__TRY(tt_normal_(all->tensors[i], 0, deviation, a->generator));
    }
    return all ? TT_OK : tt_last_status();
}

static tt_status gpt2_check(const char *caller, const tt__causal_lm *lm, const tt_model_gpt2_args *a) {
    TT__TRY(tt__lm_sizes_check(caller, lm));
    if (a->n_inner < 0 || (double)a->n_inner * (double)a->n_embd * (double)a->n_layer > 0x1p57 ||
        !(a->layer_norm_epsilon >= 0))
        return tt__fail(TT_ERR_INVALID, "%s: expected n_inner and layer_norm_epsilon of at least 0, got %lld and %g",
                        caller, (long long)a->n_inner, a->layer_norm_epsilon);
    return TT_OK;
}

tt_module *tt__gpt2_new(const char *caller, const tt_model_gpt2_args *a) {
    const tt__causal_lm sizes = {
        .vocab_size = a->vocab_size,
        .n_positions = a->n_positions,
        .n_embd = a->n_embd,
        .n_layer = a->n_layer,
        .n_head = a->n_head,
        .embd_dropout = a->embd_pdrop,
        .attn_dropout = a->attn_pdrop,
        .resid_dropout = a->resid_pdrop,
    };
    if (gpt2_check(caller, &sizes, a) || tt__layer_dtype_check(caller, a->dtype))
        return NULL;
    tt_module *self = tt__layer_new(caller, &gpt2_class, sizeof(tt__causal_lm));
    if (!self)
        return NULL;
    *(tt__causal_lm *)tt_module_user(self) = sizes;
    return tt__model_made(caller, self, gpt2_build(self, a));
}

tt_module *tt_model_gpt2_with(const tt_model_gpt2_args *args, size_t size) {
    tt_model_gpt2_args a;
    TT__ARGS_COPY(a, args, size);
    tt_module *self = tt__gpt2_new(who, &a);
    return self ? tt__model_made(who, self, gpt2_draw(self, &a)) : NULL;
}

/* ---- state dicts as they are found: published files have neither the leading "transformer." nor the head, which
 * is the table of tokens, and masks of attention among the tensors. */

static const char load_name[] = "tt_model_gpt2_load_state_dict";
static const char head_name[] = "lm_head.weight";

/* A state dict under the model's names, in its type. */
typedef struct gpt2_state {
    int64_t count;
    const char **names;
    tt_tensor **tensors;
} gpt2_state;

static bool is_mask(const char *name) {
    return tt__ends_with(name, ".attn.bias") || tt__ends_with(name, ".attn.masked_bias");
}

/* Is `name` this one, alone or behind a prefix that ends in a dot ("transformer.", or "module." of PyTorch's DDP)? */
static bool is_named(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end) && (n == m || name[n - m - 1] == '.');
}

static bool is_float(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

/* Add a tensor, floats of another type converted to the model's. */
static tt_status gpt2_take_tensor(gpt2_state *s, const char *name, tt_tensor *x, tt_dtype dtype) {
    bool convert = is_float(tt_tensor_dtype(x)) && tt_tensor_dtype(x) != dtype;
    s->names[s->count] = name;
    s->tensors[s->count] = convert ? tt_to(x, dtype) : x;
    return s->tensors[s->count++] ? TT_OK : tt_last_status();
}

/* Take all tensors except masks. If the head is missing and the model's head is its table of tokens, take that
 * table. */
static tt_status gpt2_take_state(gpt2_state *s, const tt_named_tensors *state, tt_dtype dtype, bool tied) {
    tt_tensor *tokens = NULL;
    bool head = false;
    for (int64_t i = 0; i < state->count; i++) {
        if (is_mask(state->names[i]))
            continue;
        TT__TRY(gpt2_take_tensor(s, state->names[i], state->tensors[i], dtype));
        head = head || is_named(state->names[i], head_name);
        if (is_named(state->names[i], "wte.weight"))
            tokens = s->tensors[s->count - 1];
    }
    return tokens && tied && !head ? gpt2_take_tensor(s, head_name, tokens, dtype) : TT_OK;
}

static tt_status load_taken(tt_module *model, const gpt2_state *s) {
    const tt_named_tensors list = {sizeof list, s->count, s->names, s->tensors};
    const tt_rename renames[] = {{"transformer.", "transformer."}, {"lm_head.", "lm_head."}, {"", "transformer."}};
    return tt_module_load_state_dict(model, &list, .renames = renames, .rename_count = 3);
}

/* Does the list have names and tensors? */
static tt_status list_check(const tt_named_tensors *state) {
    bool good = state && state->size >= sizeof *state && state->count >= 0 &&
                (!state->count || (state->names && state->tensors));
    for (int64_t i = 0; good && i < state->count; i++)
        good = state->names[i] && state->tensors[i];
    return good ? TT_OK : tt__fail_argument("%s: expected a list of tensors with names", load_name);
}

tt_status tt_model_gpt2_load_state_dict(tt_module *model, const tt_named_tensors *state) {
    const tt__causal_lm *lm = tt__causal_lm_of(load_name, model);
    if (!lm)
        return tt_last_status();
    if (tt__module_class(tt__module_unwrapped(model)) != &gpt2_class)
        return tt__fail(TT_ERR_INVALID, "%s: expected a model of tt_model_gpt2(), got a %s", load_name,
                        tt_module_class_name(tt__module_unwrapped(model)));
    TT__TRY(list_check(state));
    TT_AUTO_SCOPE; /* frees converted tensors */
    gpt2_state s = {.names = calloc((size_t)state->count + 1, sizeof *s.names),
                    .tensors = calloc((size_t)state->count + 1, sizeof *s.tensors)};
    bool no_grad = tt_no_grad_begin(), tied = !tt_named_tensors_find(tt_module_parameters(model), head_name);
    tt_status status = TT_ERR_MEMORY;
    if (s.names && s.tensors)
        status = gpt2_take_state(&s, state, tt_tensor_dtype(lm->token_weight), tied);
    else
        tt__fail_null(status, "%s: no memory for %lld names", load_name, (long long)state->count);
    if (!status)
        status = load_taken(model, &s);
    tt_no_grad_end(no_grad);
    free(s.names);
    free(s.tensors);
    return status;
}
