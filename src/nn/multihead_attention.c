/* MultiheadAttention. B batch, T queries, S keys, E = embed_dim, H heads of D = E / H numbers. */

#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"
#include "tensor/ops/ops.h"

#include <tutti/init.h>

#include <inttypes.h>
#include <math.h>

typedef struct multihead {
    int64_t embed_dim, heads, kdim, vdim;
    double dropout;
    bool batch_first, is_causal;
    tt_tensor *in_proj_weight, *proj_weight[3]; /* borrowed: one for all, or one each for q, k and v */
    tt_tensor *in_proj_bias;                    /* NULL: none */
    tt_module *out_proj;
} multihead;

/* One run. */
typedef struct attention_run {
    const multihead *m;
    const tt_multihead_attention_args *a;
    bool batched, training;
    int64_t B, T, S;
    tt_tensor *given[6]; /* the caller's, ended by NULL */
    tt__temporaries made;
} attention_run;

/* Note what an operator made. */
static tt_tensor *attention_temporary(attention_run *run, tt_tensor *x) {
    return tt__temporary(&run->made, run->given, x);
}

/* ---- what it takes ---- */

/* Is x (T,B,features) or (B,T,features) or, without a batch, (T,features)? */
static tt_status attention_check_one(const char *who, const multihead *m, const tt_module *self, const char *name,
                                     const tt_tensor *x, int64_t features) {
    int dims = x->shape.ndim;
    if ((dims != 2 && dims != 3) || x->shape.dim[dims - 1] != features)
        return TT__FORWARD_FAIL(
            TT_ERR_SHAPE, "forward: a %s expected %s (%s, %" PRId64 ") or, without a batch, (T, %" PRId64 "), got %s",
            who, name, m->batch_first ? "B, T" : "T, B", features, features, TT__DESCRIBE(x));
    return tt__check_layer_input(self, name, x, m->in_proj_weight ? m->in_proj_weight : m->proj_weight[0]);
}

static tt_status attention_check(const char *who, attention_run *run, const tt_module *self) {
    const multihead *m = run->m;
    const tt_tensor *q = run->a->query, *k = run->a->key, *v = run->a->value;
    TT__TRY(attention_check_one(who, m, self, "query", q, m->embed_dim));
    TT__TRY(attention_check_one(who, m, self, "key", k, m->kdim));
    TT__TRY(attention_check_one(who, m, self, "value", v, m->vdim));
    run->batched = q->shape.ndim == 3;
    int steps = run->batched && m->batch_first ? 1 : 0, batch = 1 - steps;
    bool fits = k->shape.ndim == q->shape.ndim && v->shape.ndim == q->shape.ndim;
    fits = fits && k->shape.dim[steps] == v->shape.dim[steps];
    for (int i = 0; i < 2 && fits && run->batched; i++)
        fits = q->shape.dim[batch] == (i ? v : k)->shape.dim[batch];
    if (!fits)
        return TT__FORWARD_FAIL(TT_ERR_SHAPE,
                                "forward: a %s expected query, key and value of one batch, key and value of one "
                                "length, got query %s, key %s, value %s",
                                who, TT__DESCRIBE(q), TT__DESCRIBE(k), TT__DESCRIBE(v));
    run->B = run->batched ? q->shape.dim[batch] : 1;
    run->T = q->shape.dim[steps];
    run->S = k->shape.dim[steps];
    return TT_OK;
}

static tt_status attention_check_mask(const char *who, const attention_run *run, const char *name,
                                      const tt_tensor *mask, bool fits, const char *expected) {
    if (!fits)
        return TT__FORWARD_FAIL(TT_ERR_SHAPE, "forward: a %s expected %s %s for query %s and key %s, got %s", who, name,
                                expected, TT__DESCRIBE(run->a->query), TT__DESCRIBE(run->a->key), TT__DESCRIBE(mask));
    if (mask->dtype != TT_BOOL && mask->dtype != run->a->query->dtype)
        return TT__FORWARD_FAIL(TT_ERR_DTYPE, "forward: a %s expected %s bool or %s, got %s", who, name,
                                tt_dtype_name(run->a->query->dtype), TT__DESCRIBE(mask));
    return TT_OK;
}

static tt_status attention_check_masks(const char *who, const attention_run *run) {
    const tt_tensor *padding = run->a->key_padding_mask, *mask = run->a->attn_mask;
    const tt_shape keys = run->batched ? TT_SHAPE(run->B, run->S) : TT_SHAPE(run->S);
    const tt_shape scores = TT_SHAPE(run->T, run->S), each = TT_SHAPE(run->B * run->m->heads, run->T, run->S);
    if (padding)
        TT__TRY(attention_check_mask(who, run, "key_padding_mask", padding, tt__shape_equal(&padding->shape, &keys),
                                     run->batched ? "(B, S)" : "(S)"));
    if (mask)
        TT__TRY(attention_check_mask(who, run, "attn_mask", mask,
                                     tt__shape_equal(&mask->shape, &scores) || tt__shape_equal(&mask->shape, &each),
                                     "(T, S) or (B num_heads, T, S)"));
    return TT_OK;
}

/* ---- forward ---- */

/* x (B,T,E) or (T,B,E), projected, as (B,H,T,D). */
static tt_tensor *split_heads(attention_run *run, tt_tensor *x, int64_t steps) {
    const multihead *m = run->m;
    int64_t H = m->heads, D = m->embed_dim / H;
    if (m->batch_first || !run->batched)
        return attention_temporary(
            run, tt_transpose(attention_temporary(run, tt_reshape(x, TT_SHAPE(run->B, steps, H, D))), 1, 2));
    x = attention_temporary(run, tt_reshape(x, TT_SHAPE(steps, run->B, H, D)));
    /* (B,T,H,D), (B,H,T,D) */
    return attention_temporary(run, tt_transpose(attention_temporary(run, tt_transpose(x, 0, 1)), 1, 2));
}

/* The inverse: (B,H,T,D) to the shape of the query. */
static tt_tensor *join_heads(attention_run *run, tt_tensor *x) {
    const multihead *m = run->m;
    x = attention_temporary(run, tt_transpose(x, 1, 2));
    if (!run->batched)
        return attention_temporary(run, tt_reshape(x, TT_SHAPE(run->T, m->embed_dim)));
    if (m->batch_first)
        return attention_temporary(run, tt_reshape(x, TT_SHAPE(run->B, run->T, m->embed_dim)));
    return attention_temporary(
        run, tt_reshape(attention_temporary(run, tt_transpose(x, 0, 1)), TT_SHAPE(run->T, run->B, m->embed_dim)));
}

/* Project x by part i of the weight: 0 for q, 1 for k, 2 for v. */
static tt_tensor *project(attention_run *run, tt_tensor *x, int i) {
    const multihead *m = run->m;
    tt_tensor *weight = m->proj_weight[i], *bias = m->in_proj_bias;
    if (!weight)
        weight = attention_temporary(run, tt_narrow(m->in_proj_weight, 0, i * m->embed_dim, m->embed_dim));
    if (bias && !(bias = attention_temporary(run, tt_narrow(bias, 0, i * m->embed_dim, m->embed_dim))))
        return NULL;
    return attention_temporary(run, tt_linear(x, weight, bias));
}

/* Make q, k and v (B,H,...,D); by one product if they come of one tensor. */
static void project_all(attention_run *run, tt_tensor **qkv) {
    const tt_multihead_attention_args *a = run->a;
    const multihead *m = run->m;
    tt_tensor *from[3] = {a->query, a->key, a->value};
    tt_tensor *all = NULL;
    bool same = a->query == a->key && a->key == a->value && m->in_proj_weight;
    if (same)
        all = attention_temporary(run, tt_linear(a->query, m->in_proj_weight, m->in_proj_bias));
    for (int i = 0; i < 3; i++) {
        tt_tensor *x = same ? attention_temporary(run, tt_narrow(all, -1, i * m->embed_dim, m->embed_dim))
                            : project(run, from[i], i);
        qkv[i] = x ? split_heads(run, x, i ? run->S : run->T) : NULL;
    }
}

/* Make a mask to add, of this shape; a bool mask gives -infinity where it is true. */
static tt_tensor *additive(attention_run *run, tt_tensor *mask, tt_shape shape) {
    mask = attention_temporary(run, tt_reshape(mask, shape));
    if (!mask || mask->dtype != TT_BOOL)
        return mask;
    tt_tensor *zeros = tt__empty_beside("tt_multihead_attention", mask, shape, run->a->query->dtype);
    if (!attention_temporary(run, zeros) || tt__fill_out("tt_multihead_attention", zeros, 0))
        return NULL;
    return attention_temporary(run, tt_masked_fill(zeros, mask, -INFINITY));
}

/* Make what is added to the scores (B,H,T,S), in a shape that broadcasts to theirs; NULL: nothing, or, if *failed, an
 * error. */
static tt_tensor *whole_mask(attention_run *run, bool *failed) {
    const tt_multihead_attention_args *a = run->a;
    int64_t heads = run->m->heads;
    tt_tensor *padding = NULL, *mask = NULL;
    *failed = false;
    if (a->key_padding_mask)
        padding = additive(run, a->key_padding_mask, TT_SHAPE(run->B, 1, 1, run->S));
    if (a->attn_mask)
        mask = additive(run, a->attn_mask,
                        a->attn_mask->shape.ndim == 2 ? TT_SHAPE(1, 1, run->T, run->S)
                                                      : TT_SHAPE(run->B, heads, run->T, run->S));
    tt_tensor *both = padding && mask ? attention_temporary(run, tt_add(padding, mask)) : padding ? padding : mask;
    *failed = (a->key_padding_mask && !padding) || (a->attn_mask && !mask) || (padding && mask && !both);
    return both;
}

/* -infinity above the diagonal of (T,S), else 0. */
static tt_tensor *causal_mask(attention_run *run) {
    const tt_tensor *q = run->a->query;
    tt_tensor *all =
        attention_temporary(run, tt__empty_beside("tt_multihead_attention", q, TT_SHAPE(run->T, run->S), q->dtype));
    if (!all || tt__fill_out("tt_multihead_attention", all, -INFINITY))
        return NULL;
    return attention_temporary(run, tt_triu(all, 1));
}

/* softmax(q k^T / sqrt(D) + mask), all T x S of them. Rows that see nothing are 0, as with the fused operator: hidden
 * scores get a number that keeps softmax finite, and their weights become 0 after it. */
static tt_tensor *explicit_weights(attention_run *run, tt_tensor *q, tt_tensor *k, tt_tensor *mask, bool is_causal) {
    double D = (double)tt_tensor_size(q, -1);
    tt_tensor *scores = attention_temporary(run, tt_matmul(attention_temporary(run, tt_scale(q, 1 / sqrt(D))),
                                                           attention_temporary(run, tt_transpose(k, 2, 3))));
    if (is_causal) {
        tt_tensor *causal = causal_mask(run);
        if (!causal)
            return NULL;
        mask = mask ? attention_temporary(run, tt_add(mask, causal)) : causal;
    }
    if (!mask)
        return is_causal ? NULL : attention_temporary(run, tt_softmax(scores, -1));
    scores = attention_temporary(run, tt_add(scores, mask));
    tt_tensor *hidden = attention_temporary(run, tt_eq_scalar(scores, -INFINITY));
    scores = attention_temporary(run, tt_masked_fill(scores, hidden, -1e30));
    return attention_temporary(run, tt_masked_fill(attention_temporary(run, tt_softmax(scores, -1)), hidden, 0));
}

/* The mean of the weights over heads: (B,T,S), or (T,S). */
static tt_tensor *mean_weights(attention_run *run, tt_tensor *weights) {
    tt_tensor *mean = attention_temporary(run, tt_mean(weights, .dim = TT_DIMS(1)));
    return run->batched ? mean : attention_temporary(run, tt_squeeze(mean, 0));
}

/* Attend, and return (B,H,T,D). All weights are in memory only if *weights is asked for or dropout acts on them. */
static tt_tensor *attend_heads(attention_run *run, tt_tensor *const *qkv, tt_tensor **weights) {
    bool failed, is_causal = run->m->is_causal || run->a->is_causal, drops = run->training && run->m->dropout > 0;
    tt_tensor *mask = whole_mask(run, &failed);
    if (failed)
        return NULL;
    if (!drops && !run->a->weights)
        return attention_temporary(
            run, tt_scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], .attn_mask = mask, .is_causal = is_causal));
    tt_tensor *p = explicit_weights(run, qkv[0], qkv[1], mask, is_causal);
    if (p && drops)
        p = attention_temporary(run, tt_dropout(p, run->m->dropout, true));
    if (p && run->a->weights && !(*weights = mean_weights(run, p)))
        return NULL;
    return attention_temporary(run, tt_matmul(p, qkv[2]));
}

static tt_tensor *attention_steps(attention_run *run, tt_tensor **weights) {
    tt_tensor *qkv[3];
    project_all(run, qkv);
    if (!qkv[0] || !qkv[1] || !qkv[2])
        return NULL;
    tt_tensor *y = attend_heads(run, qkv, weights);
    y = y ? join_heads(run, y) : NULL;
    return y ? attention_temporary(run, tt_module_forward(run->m->out_proj, y)) : NULL;
}

tt_tensor *tt__multihead_attention_run(const char *who, tt_module *module, const tt_multihead_attention_args *a) {
    attention_run run = {.m = tt_module_user(module), .a = a, .training = tt_module_training(module)};
    tt_tensor *const given[] = {a->query, a->key, a->value, a->key_padding_mask, a->attn_mask};
    for (int i = 0, n = 0; i < 5; i++)
        if (given[i])
            run.given[n++] = given[i];
    if (attention_check(who, &run, module) || attention_check_masks(who, &run))
        return NULL;
    tt_tensor *weights = NULL, *y = attention_steps(&run, &weights);
    tt__temporaries_end(&run.made, y, y ? weights : NULL);
    if (a->weights && y)
        *a->weights = weights;
    return y;
}

static tt_status multihead_forward(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                   int64_t out_count) {
    if ((in_count != 1 && in_count != 3) || (out_count != 1 && out_count != 2))
        return TT__FORWARD_FAIL(
            TT_ERR_INVALID,
            "forward: a %s takes x, or query, key and value, and gives output, or output and weights; %lld "
            "tensors came, and %lld were asked for; tt_multihead_attention() takes masks",
            tt_module_class_name(self), (long long)in_count, (long long)out_count);
    const tt_multihead_attention_args a = {.query = in[0],
                                           .key = in[in_count == 3 ? 1 : 0],
                                           .value = in[in_count == 3 ? 2 : 0],
                                           .weights = out_count == 2 ? &out[1] : NULL};
    out[0] = tt__multihead_attention_run(tt_module_class_name(self), self, &a);
    return out[0] ? TT_OK : tt_last_status();
}

static const tt_module_class multihead_class =
    TT_MODULE_CLASS(.name = "MultiheadAttention", .forward_many = multihead_forward, .destroy = tt__layer_destroy);

tt_tensor *tt_multihead_attention_with(const tt_multihead_attention_args *args, size_t size) {
    tt_multihead_attention_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.weights)
        *a.weights = NULL;
    if (!a.module || !a.query || !a.key || !a.value)
        return NULL;
    if (tt__module_class(a.module) != &multihead_class)
        return tt__tensor_fail(TT_ERR_INVALID, "tt_multihead_attention: expected a MultiheadAttention, got a %s",
                               tt_module_class_name(a.module));
    tt_tensor *const all[] = {a.query, a.key, a.value, a.key_padding_mask, a.attn_mask};
    for (int i = 0; i < 5; i++)
        if (all[i] && !tt__tensor_check("tt_multihead_attention", all[i]))
            return NULL;
    return tt__multihead_attention_run("MultiheadAttention", a.module, &a);
}

/* ---- making ---- */

static tt_status multihead_check(const tt_nn_multihead_attention_args *a) {
    if (a->embed_dim < 1 || a->num_heads < 1 || a->embed_dim % a->num_heads || a->embed_dim > INT64_MAX / 3)
        return tt__fail(
            TT_ERR_INVALID,
            "tt_nn_multihead_attention: expected embed_dim of at least 1 and num_heads that divides it, got "
            "%lld and %lld",
            (long long)a->embed_dim, (long long)a->num_heads);
    if (a->kdim < 0 || a->vdim < 0 || !(a->dropout >= 0 && a->dropout <= 1))
        return tt__fail(TT_ERR_INVALID,
                        "tt_nn_multihead_attention: expected kdim and vdim of at least 0, dropout in 0..1, got %lld, "
                        "%lld, %g",
                        (long long)a->kdim, (long long)a->vdim, a->dropout);
    return tt__layer_dtype_check("tt_nn_multihead_attention", a->dtype);
}

/* Add the parameters, filled with zeros, in PyTorch's order of names; those of out_proj are drawn first. */
static tt_status multihead_add(tt_module *module, multihead *m, const tt_nn_multihead_attention_args *a) {
    static const char who[] = "tt_nn_multihead_attention", *const names[] = {"q_proj_weight", "k_proj_weight",
                                                                             "v_proj_weight"};
    const int64_t E = m->embed_dim, from[] = {E, m->kdim, m->vdim};
    tt_tensor **weights = m->proj_weight;
    bool one = m->kdim == E && m->vdim == E;
    if (one)
        TT__TRY(tt__add_filled(module, who, "in_proj_weight", TT_SHAPE(3 * E, E), a->dtype, 0, &m->in_proj_weight));
    for (int i = 0; i < 3 && !one; i++)
        TT__TRY(tt__add_filled(module, who, names[i], TT_SHAPE(E, from[i]), a->dtype, 0, &weights[i]));
    if (!a->no_bias)
        TT__TRY(tt__add_filled(module, who, "in_proj_bias", TT_SHAPE(3 * E), a->dtype, 0, &m->in_proj_bias));
    m->out_proj = tt_nn_linear(E, E, .no_bias = a->no_bias, .generator = a->generator, .dtype = a->dtype);
    TT__TRY(tt_module_add_module(module, "out_proj", m->out_proj));
    if (one)
        TT__TRY(tt_init_xavier_uniform_(m->in_proj_weight, .generator = a->generator));
    for (int i = 0; i < 3 && !one; i++)
        TT__TRY(tt_init_xavier_uniform_(weights[i], .generator = a->generator));
    return a->no_bias ? TT_OK : tt_init_zeros_(tt_named_tensors_find(tt_module_parameters(m->out_proj), "bias"));
}

tt_module *tt_nn_multihead_attention_with(const tt_nn_multihead_attention_args *args, size_t size) {
    tt_nn_multihead_attention_args a;
    TT__ARGS_COPY(a, args, size);
    if (multihead_check(&a))
        return NULL;
    tt_module *module = tt__layer_new("tt_nn_multihead_attention", &multihead_class, sizeof(multihead));
    multihead *m = tt_module_user(module);
    if (!m)
        return NULL;
    m->embed_dim = a.embed_dim;
    m->heads = a.num_heads;
    m->kdim = a.kdim ? a.kdim : a.embed_dim;
    m->vdim = a.vdim ? a.vdim : a.embed_dim;
    m->dropout = a.dropout;
    m->batch_first = a.batch_first;
    m->is_causal = a.is_causal;
    return tt__layer_made(module, multihead_add(module, m, &a));
}
