/* q (T,D)  k (S,D)  v (S,Dv)  ->  y (T,Dv). A block of BLOCK rows of q has scores s (BLOCK,S) = scale q k^T + mask,
 * then p = softmax of s; all products are oneDNN's. Backward computes p again from what forward kept of each row. */
#include "tensor/cpu/cpu_attention.h"

#include "base/error.h"
#include "tensor/cpu/levels.h"
#include "tensor/cpu/onednn.h"
#include "tensor/pool.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

/* Rows `begin` to `end` of x. */
static tt_tensor block_of(const tt_tensor *x, int64_t begin, int64_t end) {
    tt_tensor part = *x;
    part.data = (float *)x->data + begin * x->stride[0];
    part.shape.dim[0] = end - begin;
    return part;
}

static tt_tensor block_transposed(const tt_tensor *x) {
    tt_tensor t = *x;
    t.shape.dim[0] = x->shape.dim[1];
    t.shape.dim[1] = x->shape.dim[0];
    t.stride[0] = x->stride[1];
    t.stride[1] = x->stride[0];
    return t;
}

static tt_tensor scores_in(float *room, int64_t rows, int64_t S) {
    return (tt_tensor){
        .dtype = TT_F32, .data = room, .shape = {.ndim = 2, .dim = {rows, S}}, .stride = {S, 1}, .numel = rows * S};
}

/* How many keys, from the first on, any of the rows before `end` sees. */
static int64_t keys_seen(const tt__attention *in, int64_t end) {
    int64_t S = in->k->shape.dim[0];
    return in->causal && end < S ? end : S;
}

/* Finish row t of S scores: scaled, with the mask, and -infinity for what causality hides. */
static void finish_scores(const tt__attention *in, int64_t t, int64_t S, float *s) {
    int64_t n = in->causal && t + 1 < S ? t + 1 : S;
    tt__elementwise()->scale(n, s, (float)in->scale, s);
    if (in->mask) {
        const float *mask = (const float *)in->mask->data + t * in->mask->stride[0];
        for (int64_t j = 0; j < n; j++)
            s[j] += mask[j * in->mask->stride[1]];
    }
    for (int64_t j = n; j < S; j++)
        s[j] = -INFINITY;
}

/* Compute s for rows `begin` and on and the first keys, as many as s has. */
static tt_status block_scores(const tt__attention *in, int64_t begin, tt_tensor *s) {
    int64_t rows = s->shape.dim[0], S = s->shape.dim[1];
    tt_tensor q = block_of(in->q, begin, begin + rows), k = block_of(in->k, 0, S), kt = block_transposed(&k);
    TT__TRY(tt__onednn_matmul_f32(s, &q, &kt, 0));
    for (int64_t r = 0; r < rows; r++)
        finish_scores(in, begin + r, S, (float *)s->data + r * s->stride[0]);
    return TT_OK;
}

static float *block_room(const tt__attention *in, int blocks) {
    float *room = tt__pool_alloc((size_t)(blocks * BLOCK * in->k->shape.dim[0]) * sizeof *room);
    if (!room)
        tt__fail(TT_ERR_MEMORY, "no memory for the scores of %d rows", BLOCK);
    return room;
}

/* Turn a row of scores into probabilities, by the maximum and sum that `stats` has. */
static void row_probabilities(int64_t S, float *s, const float *stats) {
    if (stats[0] == INFINITY)
        memset(s, 0, (size_t)S * sizeof *s);
    else
        tt__softmax()->exp_scale(S, s, (tt__sum_exp){stats[0], stats[1]}, 1, s);
}

static const float *float_row(const tt_tensor *stats, int64_t t) {
    return (const float *)stats->data + t * stats->stride[0];
}

static tt_status attention_block(tt_tensor *y, tt_tensor *stats, const tt__attention *in, int64_t begin, tt_tensor *s) {
    int64_t S = s->shape.dim[1], end = begin + s->shape.dim[0];
    TT__TRY(block_scores(in, begin, s));
    for (int64_t t = begin; t < end; t++) {
        float *row = (float *)s->data + (t - begin) * S, *kept = (float *)stats->data + t * stats->stride[0];
        tt__sum_exp e = tt__softmax()->sum_exp(S, row);
        bool sees = e.max != -INFINITY;
        kept[0] = sees ? e.max : INFINITY;
        kept[1] = sees ? e.sum : 1;
        row_probabilities(S, row, kept);
    }
    tt_tensor to = block_of(y, begin, end), v = block_of(in->v, 0, S);
    return tt__onednn_matmul_f32(&to, s, &v, 0);
}

tt_status tt__cpu_attention_f32(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    int64_t T = in->q->shape.dim[0];
    float *room = block_room(in, 1);
    tt_status status = room ? TT_OK : tt_last_status();
    for (int64_t t = 0; t < T && !status; t += BLOCK) {
        int64_t rows = T - t < BLOCK ? T - t : BLOCK;
        tt_tensor s = scores_in(room, rows, keys_seen(in, t + rows));
        status = attention_block(y, stats, in, t, &s);
    }
    tt__pool_free(room);
    return status;
}

/* ds = p (dp - sum of p dp) scale, in dp's place. The sum is g.y; made of these numbers it cancels exactly where a row
 * sees one key. */
static void score_gradients(float *dp, const float *p, int64_t S, float scale) {
    tt__softmax()->softmax_backward(S, p, dp, dp);
    tt__elementwise()->scale(S, dp, scale, dp);
}

typedef struct attention_gradients {
    tt_tensor *dq, *dk, *dv;
    const tt_tensor *stats, *g;
} attention_gradients;

/* With `beta` 0 for the block that sees all keys that any sees, then 1. */
static tt_status backward_block(const attention_gradients *to, const tt__attention *in, int64_t begin, tt_tensor *p,
                                tt_tensor *ds, double beta) {
    int64_t S = p->shape.dim[1], end = begin + p->shape.dim[0];
    tt_tensor q = block_of(in->q, begin, end), g = block_of(to->g, begin, end), dq = block_of(to->dq, begin, end);
    tt_tensor k = block_of(in->k, 0, S), v = block_of(in->v, 0, S), vt = block_transposed(&v);
    tt_tensor dk = block_of(to->dk, 0, S), dv = block_of(to->dv, 0, S);
    tt_tensor pt = block_transposed(p), dst = block_transposed(ds);
    TT__TRY(block_scores(in, begin, p));
    for (int64_t t = begin; t < end; t++)
        row_probabilities(S, (float *)p->data + (t - begin) * S, float_row(to->stats, t));
    TT__TRY(tt__onednn_matmul_f32(&dv, &pt, &g, beta));
    TT__TRY(tt__onednn_matmul_f32(ds, &g, &vt, 0));
    for (int64_t t = begin; t < end; t++)
        score_gradients((float *)ds->data + (t - begin) * S, (const float *)p->data + (t - begin) * S, S,
                        (float)in->scale);
    TT__TRY(tt__onednn_matmul_f32(&dq, ds, &k, 0));
    return tt__onednn_matmul_f32(&dk, &dst, &q, beta);
}

/* Zero the gradients of rows from `begin` on, which nothing has seen. */
static void zero_rows(tt_tensor *x, int64_t begin) {
    for (int64_t t = begin; t < x->shape.dim[0]; t++)
        for (int64_t d = 0; d < x->shape.dim[1]; d++)
            ((float *)x->data)[t * x->stride[0] + d * x->stride[1]] = 0;
}

/* From the last block to the first, as the last one sees all keys that any sees. */
tt_status tt__cpu_attention_backward_f32(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                         const tt_tensor *g, const tt__attention *in) {
    int64_t T = in->q->shape.dim[0], most = keys_seen(in, T), last = (T - 1) / BLOCK * BLOCK;
    const attention_gradients to = {dq, dk, dv, stats, g};
    float *room = block_room(in, 2);
    tt_status status = room ? TT_OK : tt_last_status();
    zero_rows(dk, T ? most : 0);
    zero_rows(dv, T ? most : 0);
    for (int64_t t = last; t >= 0 && T && !status; t -= BLOCK) {
        int64_t rows = T - t < BLOCK ? T - t : BLOCK, S = keys_seen(in, t + rows);
        tt_tensor p = scores_in(room, rows, S), ds = scores_in(room + rows * S, rows, S);
        status = backward_block(&to, in, t, &p, &ds, t < last);
    }
    tt__pool_free(room);
    return status;
}
