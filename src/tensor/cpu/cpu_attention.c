/* q (T,D)  k (S,D)  v (S,Dv)  ->  y (T,Dv). A block of BLOCK rows of q has scores s (BLOCK,S) = scale q k^T + mask,
 * then p = softmax of s; all products are oneDNN's. Backward computes p again from what forward kept of each row.
 *
 * For bf16, scores, probabilities and their gradients are f32, and are rounded to bf16 as factors of products.
 * Gradients of k and v are summed over blocks in f32 and rounded at the end. */
#include "tensor/cpu/cpu_kernels.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/levels.h"
#include "tensor/cpu/onednn/onednn.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

static tt_status attention_product(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    return a->dtype == TT_BF16 ? tt__onednn_product(y, a, b, beta) : tt__onednn_matmul_f32(y, a, b, beta);
}

/* Rows `begin` to `end` of x. */
static tt_tensor block_of(const tt_tensor *x, int64_t begin, int64_t end) {
    tt_tensor part = *x;
    part.data = (char *)x->data + begin * x->stride[0] * (int64_t)tt_dtype_size(x->dtype);
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

/* A matrix of f32 in memory of ours. */
static tt_tensor matrix_in(float *room, int64_t rows, int64_t cols) {
    return (tt_tensor){.dtype = TT_F32,
                       .data = room,
                       .shape = {.ndim = 2, .dim = {rows, cols}},
                       .stride = {cols, 1},
                       .numel = rows * cols,
                       .contiguous = true};
}

/* How many keys, from the first on, the rows before `end` see. */
static int64_t keys_seen(const tt__attention *in, int64_t end) {
    int64_t S = in->k->shape.dim[0];
    return in->causal && end < S ? end : S;
}

/* ---- memory of a call */

typedef struct attention_room {
    float *scores[2];    /* p and ds, of a block */
    float *dk, *dv;      /* sums, of bf16 */
    uint16_t *as_factor; /* scores rounded to bf16; NULL: q, k and v are f32 */
} attention_room;

static float *next_part(char **at, int64_t bytes) {
    float *part = (float *)(void *)*at;
    *at += (bytes + 63) / 64 * 64;
    return part;
}

/* Take memory for `blocks` blocks of scores, and with two of bf16 also for sums. Returns what is to be freed; NULL: no
 * memory. */
static void *attention_room_take(attention_room *room, const tt__attention *in, int blocks) {
    int64_t S = in->k->shape.dim[0], scores = BLOCK * S;
    bool narrow = in->q->dtype != TT_F32, sums = narrow && blocks == 2;
    int64_t dk = sums ? S * in->k->shape.dim[1] : 0, dv = sums ? S * in->v->shape.dim[1] : 0;
    size_t floats = (size_t)(blocks * scores + dk + dv + (narrow ? scores / 2 : 0));
    char *all = tt__pool_alloc(floats * sizeof(float) + (size_t)5 * 64), *at = all;
    if (!all) {
        tt__fail(TT_ERR_MEMORY, "no memory for the scores of %d rows", BLOCK);
        return NULL;
    }
    for (int i = 0; i < blocks; i++)
        room->scores[i] = next_part(&at, scores * 4);
    room->dk = next_part(&at, dk * 4);
    room->dv = next_part(&at, dv * 4);
    room->as_factor = narrow ? (uint16_t *)(void *)at : NULL;
    return all;
}

/* View s as the factor of a product: itself, or rounded. */
static tt_tensor as_factor(const tt_tensor *s, const attention_room *room) {
    tt_tensor factor = *s;
    if (!room->as_factor)
        return factor;
    factor.dtype = TT_BF16;
    factor.data = room->as_factor;
    tt__half_loops_of(TT_BF16)->narrow(s->numel, s->data, room->as_factor);
    return factor;
}

/* ---- scores */

/* Finish the n scores of row t that it sees: scaled, with the mask. */
static void finish_scores(const tt__attention *in, int64_t t, int64_t n, float *s) {
    tt__elementwise()->scale(n, s, (float)in->scale, s);
    if (in->mask) {
        const float *mask = (const float *)in->mask->data + t * in->mask->stride[0];
        for (int64_t j = 0; j < n; j++)
            s[j] += mask[j * in->mask->stride[1]];
    }
}

/* Compute the scores of rows `begin` and on and the first keys, as many as s has. */
static tt_status block_scores(const tt__attention *in, int64_t begin, tt_tensor *s) {
    tt_tensor q = block_of(in->q, begin, begin + s->shape.dim[0]), k = block_of(in->k, 0, s->shape.dim[1]);
    tt_tensor kt = block_transposed(&k);
    return attention_product(s, &q, &kt, 0);
}

/* Turn the n scores that a row sees into probabilities, by the maximum and sum in `stats`; the others, up to S, become
 * 0. */
static void row_probabilities(int64_t n, int64_t S, float *s, const float *stats) {
    tt__softmax()->exp_scale(n, s, (tt__sum_exp){stats[0], stats[1]}, 1, s);
    memset(s + n, 0, (size_t)(S - n) * sizeof *s);
}

static float *stats_row(const tt_tensor *stats, int64_t t) { return (float *)stats->data + t * stats->stride[0]; }

/* Does the row see nothing? NaN may escape the maximum, so -infinity may hide it. */
static bool all_hidden(int64_t n, const float *s) {
    while (n > 0 && s[n - 1] == -INFINITY)
        n--;
    return n == 0;
}

static tt_status attention_block(tt_tensor *y, tt_tensor *stats, const tt__attention *in, int64_t begin, tt_tensor *s,
                                 const attention_room *room) {
    int64_t S = s->shape.dim[1], end = begin + s->shape.dim[0];
    TT__TRY(block_scores(in, begin, s));
    for (int64_t t = begin; t < end; t++) {
        float *row = (float *)s->data + (t - begin) * S, *kept = stats_row(stats, t);
        int64_t n = keys_seen(in, t + 1);
        finish_scores(in, t, n, row);
        tt__sum_exp e = tt__softmax()->sum_exp(n, row);
        bool blind = e.max == -INFINITY && all_hidden(n, row);
        kept[0] = blind ? 0 : e.max;
        kept[1] = blind ? INFINITY : e.sum;
        row_probabilities(n, S, row, kept);
    }
    tt_tensor to = block_of(y, begin, end), v = block_of(in->v, 0, S), p = as_factor(s, room);
    return attention_product(&to, &p, &v, 0);
}

tt_status tt__cpu_attention(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    int64_t T = in->q->shape.dim[0];
    attention_room room;
    void *taken = attention_room_take(&room, in, 1);
    tt_status status = taken ? TT_OK : tt_last_status();
    for (int64_t t = 0; t < T && !status; t += BLOCK) {
        int64_t rows = T - t < BLOCK ? T - t : BLOCK;
        tt_tensor s = matrix_in(room.scores[0], rows, keys_seen(in, t + rows));
        status = attention_block(y, stats, in, t, &s, &room);
    }
    tt__pool_free(taken);
    return status;
}

/* ---- backward */

/* ds = p (dp - sum of p dp) scale for n numbers, in dp's place. The sum equals g.y; computed from these numbers it
 * cancels exactly if a row sees one key. */
static void score_gradients(float *dp, const float *p, int64_t n, int64_t S, float scale) {
    tt__softmax()->softmax_backward(n, p, dp, dp);
    tt__elementwise()->scale(n, dp, scale, dp);
    memset(dp + n, 0, (size_t)(S - n) * sizeof *dp);
}

typedef struct attention_gradients {
    tt_tensor *dq, *dk, *dv;
    const tt_tensor *stats, *g;
    const attention_room *room;
} attention_gradients;

/* Compute one block. `beta`: 0 for the first, which sees the most keys; then 1, which adds to dk and dv. */
static tt_status backward_block(const attention_gradients *to, const tt__attention *in, int64_t begin, tt_tensor *p,
                                tt_tensor *ds, double beta) {
    int64_t S = p->shape.dim[1], end = begin + p->shape.dim[0];
    tt_tensor q = block_of(in->q, begin, end), g = block_of(to->g, begin, end), dq = block_of(to->dq, begin, end);
    tt_tensor k = block_of(in->k, 0, S), v = block_of(in->v, 0, S), vt = block_transposed(&v);
    tt_tensor dk = block_of(to->dk, 0, S), dv = block_of(to->dv, 0, S);
    TT__TRY(block_scores(in, begin, p));
    for (int64_t t = begin; t < end; t++) {
        float *row = (float *)p->data + (t - begin) * S;
        finish_scores(in, t, keys_seen(in, t + 1), row);
        row_probabilities(keys_seen(in, t + 1), S, row, stats_row(to->stats, t));
    }
    tt_tensor factor = as_factor(p, to->room), transposed = block_transposed(&factor);
    TT__TRY(attention_product(&dv, &transposed, &g, beta));
    TT__TRY(attention_product(ds, &g, &vt, 0));
    for (int64_t t = begin; t < end; t++)
        score_gradients((float *)ds->data + (t - begin) * S, (const float *)p->data + (t - begin) * S,
                        keys_seen(in, t + 1), S, (float)in->scale);
    factor = as_factor(ds, to->room);
    transposed = block_transposed(&factor);
    TT__TRY(attention_product(&dq, &factor, &k, 0));
    return attention_product(&dk, &transposed, &q, beta);
}

/* Zero the gradients of rows from `begin` on, which nothing has seen. */
static void zero_rows(tt_tensor *x, int64_t begin) {
    for (int64_t t = begin; t < x->shape.dim[0]; t++)
        for (int64_t d = 0; d < x->shape.dim[1]; d++)
            ((float *)x->data)[t * x->stride[0] + d * x->stride[1]] = 0;
}

/* Go from the last block to the first, because the last one sees the most keys. dk and dv are f32. */
static tt_status backward_blocks(const attention_gradients *to, const tt__attention *in) {
    int64_t T = in->q->shape.dim[0], most = keys_seen(in, T), last = (T - 1) / BLOCK * BLOCK;
    tt_status status = TT_OK;
    zero_rows(to->dk, T ? most : 0);
    zero_rows(to->dv, T ? most : 0);
    for (int64_t t = last; t >= 0 && T && !status; t -= BLOCK) {
        int64_t rows = T - t < BLOCK ? T - t : BLOCK, S = keys_seen(in, t + rows);
        tt_tensor p = matrix_in(to->room->scores[0], rows, S), ds = matrix_in(to->room->scores[1], rows, S);
        status = backward_block(to, in, t, &p, &ds, t < last);
    }
    return status;
}

tt_status tt__cpu_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                     const tt_tensor *g, const tt__attention *in) {
    attention_room room;
    void *taken = attention_room_take(&room, in, 2);
    if (!taken)
        return tt_last_status();
    int64_t S = in->k->shape.dim[0];
    tt_tensor dk_sum = matrix_in(room.dk, S, in->k->shape.dim[1]), dv_sum = matrix_in(room.dv, S, in->v->shape.dim[1]);
    bool narrow = in->q->dtype != TT_F32;
    const attention_gradients to = {
        .dq = dq, .dk = narrow ? &dk_sum : dk, .dv = narrow ? &dv_sum : dv, .stats = stats, .g = g, .room = &room};
    tt_status status = backward_blocks(&to, in);
    if (!status && narrow)
        status = tt__cpu_convert(dk, &dk_sum);
    if (!status && narrow)
        status = tt__cpu_convert(dv, &dv_sum);
    tt__pool_free(taken);
    return status;
}
