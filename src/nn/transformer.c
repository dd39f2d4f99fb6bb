/* Layers of self-attention and feedforward, and stacks of them. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct encoder_layer {
    tt_nn_transformer_encoder_layer_args args; /* the constructor's, for copies of the layer */
    tt_module *self_attn, *linear1, *dropout, *linear2, *norm1, *norm2, *dropout1, *dropout2; /* children */
    const tt_tensor *weight; /* of linear1: inputs must have its type and device */
} encoder_layer;

/* One run of a layer: its inputs and temporaries. */
typedef struct layer_run {
    const encoder_layer *l;
    tt_module *self;
    const tt_transformer_encoder_args *a;
    tt_tensor *given[2];
    tt__temporaries made;
} layer_run;

static tt_tensor *layer_temporary(layer_run *run, tt_tensor *x) { return tt__temporary(&run->made, run->given, x); }

static tt_tensor *run_child(layer_run *run, tt_module *child, tt_tensor *x) {
    return layer_temporary(run, tt_module_forward(child, x));
}

/* ---- forward ---- */

static tt_tensor *encoder_attention(layer_run *run, tt_tensor *x) {
    if (!x)
        return NULL;
    const tt_multihead_attention_args a = {.query = x,
                                           .key = x,
                                           .value = x,
                                           .key_padding_mask = run->a->src_key_padding_mask,
                                           .attn_mask = run->a->mask,
                                           .is_causal = run->a->is_causal};
    tt_tensor *y =
        layer_temporary(run, tt__multihead_attention_run(tt_module_class_name(run->self), run->l->self_attn, &a));
    return run_child(run, run->l->dropout1, y);
}

static tt_tensor *encoder_feedforward(layer_run *run, tt_tensor *x) {
    const encoder_layer *l = run->l;
    x = run_child(run, l->linear1, x);
    x = layer_temporary(run, l->args.gelu ? tt_gelu(x) : tt_relu(x));
    x = run_child(run, l->linear2, run_child(run, l->dropout, x));
    return run_child(run, l->dropout2, x);
}

static tt_tensor *layer_steps(layer_run *run, tt_tensor *x) {
    const encoder_layer *l = run->l;
    if (l->args.norm_first) {
        x = layer_temporary(run, tt_add(x, encoder_attention(run, run_child(run, l->norm1, x))));
        return layer_temporary(run, tt_add(x, encoder_feedforward(run, run_child(run, l->norm2, x))));
    }
    x = run_child(run, l->norm1, layer_temporary(run, tt_add(x, encoder_attention(run, x))));
    return run_child(run, l->norm2, layer_temporary(run, tt_add(x, encoder_feedforward(run, x))));
}

/* Has x d_model features? If the norms and products inside checked that, errors would name other modules. */
static tt_status layer_check(tt_module *self, const encoder_layer *l, const tt_tensor *x) {
    int dims = x->shape.ndim;
    if ((dims == 2 || dims == 3) && x->shape.dim[dims - 1] == l->args.d_model)
        return TT_OK;
    return TT__FORWARD_FAIL(
        TT_ERR_SHAPE, "forward: a %s expected x (%s, %" PRId64 ") or, without a batch, (T, %" PRId64 "), got x %s",
        tt_module_class_name(self), l->args.batch_first ? "B, T" : "T, B", l->args.d_model, l->args.d_model,
        TT__DESCRIBE(x));
}

static tt_tensor *layer_with_masks(tt_module *self, tt_tensor *x, const tt_transformer_encoder_args *a) {
    layer_run run = {.l = tt_module_user(self), .self = self, .a = a, .given = {x}};
    if (layer_check(self, run.l, x) || tt__check_layer_input(self, "x", x, run.l->weight))
        return NULL;
    x = layer_steps(&run, x);
    tt__temporaries_end(&run.made, x, NULL);
    return x;
}

static tt_tensor *encoder_layer_forward(tt_module *self, tt_tensor *x) {
    return layer_with_masks(self, x, &(tt_transformer_encoder_args)TT_ARGS_INIT);
}

static const tt_module_class encoder_layer_class =
    TT_MODULE_CLASS(.name = "TransformerEncoderLayer", .forward = encoder_layer_forward, .destroy = tt__layer_destroy);

/* ---- making a layer ---- */

static tt_status encoder_layer_check(const char *who, const tt_nn_transformer_encoder_layer_args *a) {
    if (a->d_model < 1 || a->nhead < 1 || a->d_model % a->nhead || a->dim_feedforward < 1)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected sizes of at least 1 and nhead that divides d_model, got d_model %lld, nhead "
                        "%lld, dim_feedforward %lld",
                        who, (long long)a->d_model, (long long)a->nhead, (long long)a->dim_feedforward);
    if (!(a->dropout >= 0 && a->dropout <= 1) || !(a->layer_norm_eps >= 0))
        return tt__fail(TT_ERR_INVALID, "%s: expected dropout in 0..1 and layer_norm_eps of at least 0, got %g and %g",
                        who, a->dropout, a->layer_norm_eps);
    return tt__layer_dtype_check(who, a->dtype);
}

static tt_status encoder_layer_add(tt_module *module, encoder_layer *l) {
    const tt_nn_transformer_encoder_layer_args *a = &l->args;
    l->self_attn = tt_nn_multihead_attention(a->d_model, a->nhead, .dropout = a->dropout, .batch_first = a->batch_first,
                                             .is_causal = a->is_causal, .generator = a->generator, .dtype = a->dtype);
    TT__TRY(tt_module_add_module(module, "self_attn", l->self_attn));
    l->linear1 = tt_nn_linear(a->d_model, a->dim_feedforward, .generator = a->generator, .dtype = a->dtype);
    TT__TRY(tt_module_add_module(module, "linear1", l->linear1));
    TT__TRY(tt_module_add_module(module, "dropout", l->dropout = tt_nn_dropout(a->dropout)));
    l->linear2 = tt_nn_linear(a->dim_feedforward, a->d_model, .generator = a->generator, .dtype = a->dtype);
    TT__TRY(tt_module_add_module(module, "linear2", l->linear2));
    l->norm1 = tt_nn_layer_norm(TT_SHAPE(a->d_model), .eps = a->layer_norm_eps, .dtype = a->dtype);
    TT__TRY(tt_module_add_module(module, "norm1", l->norm1));
    l->norm2 = tt_nn_layer_norm(TT_SHAPE(a->d_model), .eps = a->layer_norm_eps, .dtype = a->dtype);
    TT__TRY(tt_module_add_module(module, "norm2", l->norm2));
    TT__TRY(tt_module_add_module(module, "dropout1", l->dropout1 = tt_nn_dropout(a->dropout)));
    TT__TRY(tt_module_add_module(module, "dropout2", l->dropout2 = tt_nn_dropout(a->dropout)));
    l->weight = tt_named_tensors_find(tt_module_parameters(l->linear1), "weight");
    return l->weight ? TT_OK : tt_last_status();
}

tt_module *tt_nn_transformer_encoder_layer_with(const tt_nn_transformer_encoder_layer_args *args, size_t size) {
    static const char who[] = "tt_nn_transformer_encoder_layer";
    tt_nn_transformer_encoder_layer_args a;
    TT__ARGS_COPY(a, args, size);
    if (encoder_layer_check(who, &a))
        return NULL;
    tt_module *module = tt__layer_new(who, &encoder_layer_class, sizeof(encoder_layer));
    encoder_layer *l = tt_module_user(module);
    if (!l)
        return NULL;
    l->args = a;
    tt_status status = encoder_layer_add(module, l);
    l->args.generator = NULL; /* it may be freed before the layer is copied */
    return tt__layer_made(module, status);
}

/* ---- stacks ---- */

/* The children of an encoder. */
typedef struct encoder {
    tt_module *layers, *norm; /* norm may be NULL */
} encoder;

static tt_tensor *encoder_with_masks(tt_module *self, tt_tensor *src, const tt_transformer_encoder_args *a) {
    const encoder *e = tt_module_user(self);
    tt__temporaries made = {0};
    tt_tensor *given[] = {src, NULL}, *x = src;
    for (int64_t i = 0; i < tt_module_child_count(e->layers) && x; i++) {
        tt_tensor *next = layer_with_masks(tt_module_child_at(e->layers, i), x, a);
        if (x != src)
            tt__abandon(x);
        x = next;
    }
    if (x && e->norm) {
        tt__temporary(&made, given, x);
        x = tt_module_forward(e->norm, x);
    }
    tt__temporaries_end(&made, x, NULL);
    return x;
}

static tt_tensor *encoder_forward(tt_module *self, tt_tensor *x) {
    return encoder_with_masks(self, x, &(tt_transformer_encoder_args)TT_ARGS_INIT);
}

static const tt_module_class encoder_class =
    TT_MODULE_CLASS(.name = "TransformerEncoder", .forward = encoder_forward, .destroy = tt__layer_destroy);

/* Bring a new module to the type and device of x. */
static tt_status bring_to(tt_module *module, const tt_tensor *x) {
    TT__TRY(tt_module_to(module, tt_tensor_dtype(x)));
    return tt_module_to_device(module, tt_tensor_device(x));
}

/* Make a copy of a layer, with its values, type and device. They overwrite the values that its constructor draws. */
static tt_module *layer_copy(tt_module *layer) {
    const encoder_layer *from = tt_module_user(layer);
    tt_nn_transformer_encoder_layer_args a = from->args;
    const tt_named_tensors *state = tt_module_state_dict(layer);
    tt_generator *scratch = state ? tt_generator_new(0) : NULL; /* so that the default one draws nothing */
    a.generator = scratch;
    tt_module *copy = scratch ? tt_nn_transformer_encoder_layer_with(&a, sizeof a) : NULL;
    tt_generator_free(scratch);
    if (!copy)
        return NULL;
    tt_status status = bring_to(copy, from->weight);
    return tt__layer_made(copy, status ? status : tt_module_load_state_dict(copy, state));
}

enum { ENCODER_MOST_LAYERS = 1000 };

static tt_status encoder_check(const tt_nn_transformer_encoder_args *a) {
    static const char who[] = "tt_nn_transformer_encoder";
    if (!a->encoder_layer)
        return tt__fail_argument("%s: the encoder_layer is NULL", who);
    if (tt__module_class(a->encoder_layer) != &encoder_layer_class)
        return tt__fail(TT_ERR_INVALID, "%s: expected a TransformerEncoderLayer, got a %s", who,
                        tt_module_class_name(a->encoder_layer));
    if (a->encoder_layer->parent)
        return tt__fail(TT_ERR_STATE, "%s: the encoder_layer belongs to a module already", who);
    if (a->num_layers < 1 || a->num_layers > ENCODER_MOST_LAYERS)
        return tt__fail(TT_ERR_INVALID, "%s: expected num_layers in 1..%d, got %lld", who, ENCODER_MOST_LAYERS,
                        (long long)a->num_layers);
    return TT_OK;
}

static tt_status encoder_add_norm(tt_module *module, encoder *e, const tt_module *layer) {
    const encoder_layer *l = tt_module_user(layer);
    e->norm = tt_nn_layer_norm(TT_SHAPE(l->args.d_model), .eps = l->args.layer_norm_eps, .dtype = l->args.dtype);
    TT__TRY(tt_module_add_module(module, "norm", e->norm));
    return bring_to(e->norm, l->weight);
}

/* Add the layers and the norm. On failure the given layer is freed, or the module's. */
static tt_status encoder_add(tt_module *module, encoder *e, const tt_nn_transformer_encoder_args *a) {
    e->layers = tt_nn_module_list();
    tt_status status = tt_module_add_module(module, "layers", e->layers);
    if (status)
        tt_module_free(a->encoder_layer);
    else
        status = tt_module_list_append(e->layers, a->encoder_layer);
    for (int64_t i = 1; i < a->num_layers && !status; i++)
        status = tt_module_list_append(e->layers, layer_copy(a->encoder_layer));
    return !status && a->norm ? encoder_add_norm(module, e, a->encoder_layer) : status;
}

tt_module *tt_nn_transformer_encoder_with(const tt_nn_transformer_encoder_args *args, size_t size) {
    static const char who[] = "tt_nn_transformer_encoder";
    tt_nn_transformer_encoder_args a;
    TT__ARGS_COPY(a, args, size);
    tt_module *module = encoder_check(&a) ? NULL : tt__layer_new(who, &encoder_class, sizeof(encoder));
    encoder *e = tt_module_user(module);
    if (e)
        return tt__layer_made(module, encoder_add(module, e, &a));
    if (a.encoder_layer && !a.encoder_layer->parent)
        tt_module_free(a.encoder_layer);
    return NULL;
}

tt_tensor *tt_transformer_encoder_with(const tt_transformer_encoder_args *args, size_t size) {
    static const char who[] = "tt_transformer_encoder";
    tt_transformer_encoder_args a;
    TT__ARGS_COPY(a, args, size);
    tt_tensor *const all[] = {a.src, a.mask, a.src_key_padding_mask};
    if (!a.module || !a.src)
        return NULL;
    for (int i = 0; i < 3; i++)
        if (all[i] && !tt__tensor_check(who, all[i]))
            return NULL;
    if (tt__module_class(a.module) == &encoder_class)
        return encoder_with_masks(a.module, a.src, &a);
    if (tt__module_class(a.module) == &encoder_layer_class)
        return layer_with_masks(a.module, a.src, &a);
    return tt__tensor_fail(TT_ERR_INVALID, "%s: expected a TransformerEncoder or one of its layers, got a %s", who,
                           tt_module_class_name(a.module));
}
