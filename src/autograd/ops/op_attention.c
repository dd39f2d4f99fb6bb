/* q (...,T,D)  k (...,S,D)  v (...,S,Dv)  ->  y (...,T,Dv) = softmax(scale q k^T + mask) v
 *
 * Neither pass has all T x S scores in memory: each computes a block of rows at a time, backward from the maximum and
 * the sum of each row. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

#include <math.h>

static const char who[] = "tt_scaled_dot_product_attention";

typedef struct attention_state {
    double scale;
    bool causal;
} attention_state;

/* View a mask that broadcasts as (..., T, S). */
static tt_tensor wide_mask(const tt_tensor *mask, const tt_tensor *q, const tt_tensor *k) {
    tt_shape shape = q->shape;
    int64_t stride[TT_MAX_DIMS];
    shape.dim[shape.ndim - 1] = k->shape.dim[k->shape.ndim - 2];
    tt__shape_broadcast_strides(&mask->shape, mask->stride, &shape, stride);
    return tt__tensor_seen(mask, shape, stride);
}

/* Where there are no scores all gradients are zero. */
static tt_status give_nothing(tt_node *node) {
    for (int i = 0; i < 3; i++)
        if (tt__grad_wanted(node, i))
            TT__GIVE(node, i, d, tt__fill_out(who, d, 0));
    return TT_OK;
}

/* Saved; the last two may be missing. */
enum { SAVED_Q, SAVED_K, SAVED_V, SAVED_STATS, SAVED_MASK, SAVED_Y, SAVES };

static tt_status attention_backward(tt_node *node) {
    const attention_state *s = tt__state(node);
    const tt_tensor *saved[SAVES], *g = tt__grad_of(node, 0);
    for (int i = 0; i < SAVES; i++) {
        const bool missing = i >= SAVED_MASK && !node->save[i].tensor;
        saved[i] = missing ? NULL : tt__saved(node, i);
        if (!saved[i] && !missing)
            return tt_last_status();
    }
    tt__attention in = {.q = saved[SAVED_Q],
                        .k = saved[SAVED_K],
                        .v = saved[SAVED_V],
                        .y = saved[SAVED_Y],
                        .scale = s->scale,
                        .causal = s->causal};
    tt_tensor mask, *d[3] = {NULL};
    if (g->numel == 0 || in.k->numel == 0)
        return give_nothing(node);
    if (saved[SAVED_MASK]) {
        mask = wide_mask(saved[SAVED_MASK], in.q, in.k);
        in.mask = &mask;
    }
    for (int i = 0; i < 3; i++) {
        if (tt__grad_wanted(node, i) && !(d[i] = tt__grad_dest(node, i)))
            return tt_last_status();
    }
    TT__TRY(tt__attention_backward_out(who, d, saved[SAVED_STATS], g, &in));
    for (int i = 0; i < 3; i++)
        if (d[i])
            TT__TRY(tt__grad_give(node, i, d[i]));
    return TT_OK;
}

static const tt__operator attention_op = {.name = who, .backward = attention_backward};

static bool shapes_fit(const tt_tensor *q, const tt_tensor *k, const tt_tensor *v) {
    int n = q->shape.ndim;
    if (n < 2 || k->shape.ndim != n || v->shape.ndim != n)
        return false;
    for (int d = 0; d < n - 2; d++)
        if (k->shape.dim[d] != q->shape.dim[d] || v->shape.dim[d] != q->shape.dim[d])
            return false;
    return q->shape.dim[n - 1] == k->shape.dim[n - 1] && k->shape.dim[n - 2] == v->shape.dim[n - 2];
}

static bool mask_fits(const tt_tensor *mask, const tt_tensor *q, const tt_tensor *k) {
    tt_shape scores = q->shape, both;
    scores.dim[scores.ndim - 1] = k->shape.dim[k->shape.ndim - 2];
    return tt__shape_broadcast(&mask->shape, &scores, &both) && tt__shape_equal(&both, &scores);
}

static bool check_attention(const tt_scaled_dot_product_attention_args *a) {
    if (!TT__CHECK_FLOATS(who, {"q", a->q}, {"k", a->k}, {"v", a->v}) ||
        (a->attn_mask && !tt__tensor_check(who, a->attn_mask)))
        return false;
    if (!shapes_fit(a->q, a->k, a->v)) {
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected q (..., T, D), k (..., S, D), v (..., S, Dv), got q %s, k %s, v %s",
                        who, TT__DESCRIBE(a->q), TT__DESCRIBE(a->k), TT__DESCRIBE(a->v));
        return false;
    }
    if (a->attn_mask && !mask_fits(a->attn_mask, a->q, a->k)) {
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected attn_mask that broadcasts to (..., T, S), got %s for q %s, k %s",
                        who, TT__DESCRIBE(a->attn_mask), TT__DESCRIBE(a->q), TT__DESCRIBE(a->k));
        return false;
    }
    if (a->attn_mask && a->attn_mask->requires_grad) {
        tt__tensor_fail(TT_ERR_UNSUPPORTED, "%s: attn_mask gets no gradient here; tt_detach() it", who);
        return false;
    }
    return TT__SAME_DEVICE(who, a->q, a->attn_mask);
}

static tt_tensor *attend(tt_tensor *q, tt_tensor *k, tt_tensor *v, const tt_tensor *mask, attention_state s) {
    tt__attention in = {.q = q, .k = k, .v = v, .scale = s.scale, .causal = s.causal};
    tt_shape shape = q->shape;
    shape.dim[shape.ndim - 1] = v->shape.dim[v->shape.ndim - 1];
    tt_tensor *y = tt__empty_beside(who, q, shape, q->dtype), *stats = y ? tt__attention_stats(who, q) : NULL, wide;
    if (!stats)
        return tt__abandon(y);
    if (mask) {
        wide = wide_mask(mask, q, k);
        in.mask = &wide;
    }
    y = tt__made(who, y, y->numel && k->numel ? tt__attention_out(who, y, stats, &in) : tt__fill_out(who, y, 0));
    y = tt__recorded(&attention_op, y, TT__INPUTS(q, k, v),
                     TT__SAVES({q, "q"}, {k, "k"}, {v, "v"}, {stats, "sums"}, {mask, "attn_mask"},
                               {tt__attention_keeps_y(&in) ? y : NULL, "its result"}),
                     TT__STATE(s));
    tt__abandon(stats);
    return y;
}

tt_tensor *tt_scaled_dot_product_attention_with(const tt_scaled_dot_product_attention_args *args, size_t size) {
    tt_scaled_dot_product_attention_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.q || !a.k || !a.v || !TT__AUTOCAST(who, &a.q, &a.k, &a.v, &a.attn_mask) || !check_attention(&a))
        return NULL;
    double D = (double)a.q->shape.dim[a.q->shape.ndim - 1];
    attention_state s = {.scale = a.scale != 0 ? a.scale : 1 / sqrt(D), .causal = a.is_causal};
    tt_tensor *mask = a.attn_mask ? tt__additive_mask(who, a.attn_mask, a.q) : NULL;
    tt_tensor *y = a.attn_mask && !mask ? NULL : attend(a.q, a.k, a.v, mask, s);
    tt__contiguous_done(mask, a.attn_mask);
    return y;
}
