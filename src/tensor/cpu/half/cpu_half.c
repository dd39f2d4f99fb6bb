/* Kernels of f16 and bf16: those of f32, over stand-ins in f32 (wide.h) or a chunk at a time. Products and convolutions
 * of bf16 are oneDNN's where the processor has instructions for them. */
#include "tensor/cpu/cpu_kernels.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/levels.h"
#include "tensor/cpu/onednn/onednn.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

#include <stdatomic.h>

/* Return what `call` to oneDNN returns, if x is bf16 and oneDNN supports that. */
#define BF16_BY_ONEDNN(x, call)                                 \
    do {                                                        \
        if ((x)->dtype == TT_BF16 && tt__onednn_takes_bf16()) { \
            tt_status done = (call);                            \
            if (done != TT_ERR_UNSUPPORTED)                     \
                return done;                                    \
        }                                                       \
    } while (0)

/* Compute `call` on the stand-ins w of y, a and b. */
#define OVER(y, a, b, call)                                  \
    do {                                                     \
        tt__wide w[3];                                       \
        tt_status status = tt__wide_three(w, (y), (a), (b)); \
        if (!status)                                         \
            status = (call);                                 \
        return tt__wide_end(status, 3, w);                   \
    } while (0)

/* If y's rows have gaps and a has an odd number of columns, oneDNN's bf16 product pads these with zeros, which it also
 * multiplies with the last column: an infinity there becomes NaN. */
static bool infinities_are_lost(const tt_tensor *y, const tt_tensor *a) {
    return a->shape.dim[1] % 2 && !tt__shape_is_contiguous(&y->shape, y->stride);
}

tt_status tt__cpu_matmul_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    if (!infinities_are_lost(y, a))
        BF16_BY_ONEDNN(y, tt__onednn_product(y, a, b, beta));
    tt__wide w[3] = {{.x = NULL}, {.x = NULL}, {.x = NULL}};
    tt_status status = tt__wide_begin(&w[0], y, beta != 0 ? TT__WIDE_BOTH : TT__WIDE_OUT);
    if (!status)
        status = tt__wide_begin(&w[1], a, TT__WIDE_IN);
    if (!status)
        status = tt__wide_begin(&w[2], b, TT__WIDE_IN);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, matmul)(&w[0].seen, &w[1].seen, &w[2].seen, beta);
    return tt__wide_end(status, 3, w);
}

tt_status tt__cpu_matmul_bias_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    BF16_BY_ONEDNN(y, tt__onednn_product_bias(y, a, b, bias));
    return TT_ERR_UNSUPPORTED;
}

/* ---- convolutions */

tt_status tt__cpu_conv2d_half(tt_tensor *y, const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias,
                              const tt__conv *conv) {
    BF16_BY_ONEDNN(y, tt__onednn_conv2d(y, x, weight, bias, conv));
    tt__wide w[4] = {{.x = NULL}, {.x = NULL}, {.x = NULL}, {.x = NULL}};
    tt_status status = tt__wide_three(w, y, x, weight);
    if (!status)
        status = tt__wide_begin(&w[3], bias, TT__WIDE_IN);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, conv2d)(&w[0].seen, &w[1].seen, &w[2].seen, tt__wide_seen(&w[3]), conv);
    return tt__wide_end(status, 4, w);
}

tt_status tt__cpu_conv2d_backward_data_half(tt_tensor *dx, const tt_tensor *g, const tt_tensor *weight,
                                            const tt__conv *conv) {
    BF16_BY_ONEDNN(dx, tt__onednn_conv2d_backward_data(dx, g, weight, conv));
    OVER(dx, g, weight, TT__F32_KERNEL(&w[0].seen, conv2d_backward_data)(&w[0].seen, &w[1].seen, &w[2].seen, conv));
}

tt_status tt__cpu_conv2d_backward_weight_half(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                              const tt__conv *conv) {
    BF16_BY_ONEDNN(dw, tt__onednn_conv2d_backward_weight(dw, db, x, g, conv));
    tt__wide w[4] = {{.x = NULL}, {.x = NULL}, {.x = NULL}, {.x = NULL}};
    tt_status status = tt__wide_three(w, dw, x, g);
    if (!status)
        status = tt__wide_begin(&w[3], db, TT__WIDE_OUT);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, conv2d_backward_weight)(&w[0].seen, tt__wide_seen(&w[3]), &w[1].seen,
                                                                    &w[2].seen, conv);
    return tt__wide_end(status, 4, w);
}

/* ---- softmax, dropout, pooling */

tt_status tt__cpu_softmax_half(tt_tensor *y, const tt_tensor *x) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, softmax)(&w[0].seen, &w[1].seen));
}

tt_status tt__cpu_softmax_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    OVER(dx, y, g, TT__F32_KERNEL(&w[0].seen, softmax_backward)(&w[0].seen, &w[1].seen, &w[2].seen));
}

tt_status tt__cpu_log_softmax_half(tt_tensor *y, const tt_tensor *x) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, log_softmax)(&w[0].seen, &w[1].seen));
}

tt_status tt__cpu_log_softmax_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    OVER(dx, y, g, TT__F32_KERNEL(&w[0].seen, log_softmax_backward)(&w[0].seen, &w[1].seen, &w[2].seen));
}

tt_status tt__cpu_dropout_half(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, dropout)(&w[0].seen, &w[1].seen, call));
}

tt_status tt__cpu_max_pool2d_half(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool) {
    OVER(y, x, NULL, TT__F32_KERNEL(&w[0].seen, max_pool2d)(&w[0].seen, at, &w[1].seen, pool));
}

tt_status tt__cpu_max_pool2d_backward_half(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                           const tt__pooling *pool) {
    OVER(dx, g, NULL, TT__F32_KERNEL(&w[0].seen, max_pool2d_backward)(&w[0].seen, &w[1].seen, at, pool));
}

/* ---- sums. Where columns are added up (a bias's gradient), some of them are widened at a time: the f32 copies stay in
 * the cache. */

enum { WIDE_NUMBERS = 1 << 15, LEAST_COLUMNS = 32, MOST_COLUMNS = 512 };

typedef struct half_columns {
    int64_t rows, cols;
    const tt__half_loops *loops;
    const uint16_t *x;
    double factor;
    uint16_t *y;
    atomic_bool no_memory;
} half_columns;

static void sum_half_columns(void *user, int64_t begin, int64_t end) {
    half_columns *c = user;
    int64_t n = end - begin;
    float sums[MOST_COLUMNS], *wide = tt__pool_alloc((size_t)(c->rows * n) * sizeof *wide);
    if (!wide) {
        c->no_memory = true;
        return;
    }
    for (int64_t r = 0; r < c->rows; r++)
        c->loops->widen(n, c->x + r * c->cols + begin, wide + r * n);
    tt__reduce()->sum_rows(c->rows, n, n, wide, c->factor, sums);
    c->loops->narrow(n, sums, c->y + begin);
    tt__pool_free(wide);
}

static int64_t columns_at_once(int64_t rows) {
    int64_t n = WIDE_NUMBERS / rows / LEAST_COLUMNS * LEAST_COLUMNS;
    return n < LEAST_COLUMNS ? LEAST_COLUMNS : n > MOST_COLUMNS ? MOST_COLUMNS : n;
}

tt_status tt__cpu_sum_half(tt_tensor *y, const tt_tensor *x, double factor) {
    int64_t cols = 0;
    if (tt__sums_leading(y, x, &cols) && cols > 1 && x->numel > cols) {
        half_columns c = {.rows = x->numel / cols, .cols = cols, .x = x->data, .factor = factor, .y = y->data};
        c.loops = tt__half_loops_of(x->dtype);
        tt__parallel_for(cols, columns_at_once(c.rows), sum_half_columns, &c);
        return c.no_memory ? tt__fail(TT_ERR_MEMORY, "no memory for columns of %lld numbers in f32", (long long)c.rows)
                           : TT_OK;
    }
    tt__wide w[3];
    tt_status status = tt__wide_three(w, y, x, NULL);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, sum)(&w[0].seen, &w[1].seen, factor);
    return tt__wide_end(status, 3, w);
}

/* ---- attention of f16, and of bf16 where oneDNN has no fast products of it: one matrix of the batch at a time in f32,
 * which stays in the cache */

static bool by_onednn(const tt__attention *in) { return in->q->dtype == TT_BF16 && tt__onednn_takes_bf16(); }

enum { Q, K, V, Y, G, DQ, DK, DV, WIDES };

static tt_status widen_inputs(tt__wide w[WIDES], const tt__attention *in, tt__attention *wide) {
    for (int i = 0; i < WIDES; i++)
        w[i] = (tt__wide){.x = NULL};
    *wide = *in;
    wide->q = &w[Q].seen;
    wide->k = &w[K].seen;
    wide->v = &w[V].seen;
    TT__TRY(tt__wide_begin(&w[Q], in->q, TT__WIDE_IN));
    TT__TRY(tt__wide_begin(&w[K], in->k, TT__WIDE_IN));
    return tt__wide_begin(&w[V], in->v, TT__WIDE_IN);
}

tt_status tt__cpu_attention_half(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    tt__wide w[WIDES];
    tt__attention wide;
    tt_status done = by_onednn(in) ? tt__cpu_attention(y, stats, in) : TT_ERR_UNSUPPORTED;
    if (done != TT_ERR_UNSUPPORTED)
        return done;
    tt_status status = widen_inputs(w, in, &wide);
    if (!status)
        status = tt__wide_begin(&w[Y], y, TT__WIDE_OUT);
    if (!status)
        status = tt__cpu_attention(&w[Y].seen, stats, &wide);
    return tt__wide_end(status, WIDES, w);
}

tt_status tt__cpu_attention_backward_half(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                          const tt_tensor *g, const tt__attention *in) {
    tt__wide w[WIDES];
    tt__attention wide;
    tt_tensor *const out[] = {dq, dk, dv};
    tt_status done = by_onednn(in) ? tt__cpu_attention_backward(dq, dk, dv, stats, g, in) : TT_ERR_UNSUPPORTED;
    if (done != TT_ERR_UNSUPPORTED)
        return done;
    tt_status status = widen_inputs(w, in, &wide);
    if (!status)
        status = tt__wide_begin(&w[G], g, TT__WIDE_IN);
    for (int i = 0; i < 3 && !status; i++)
        status = tt__wide_begin(&w[DQ + i], out[i], TT__WIDE_OUT);
    if (!status)
        status = tt__cpu_attention_backward(&w[DQ].seen, &w[DK].seen, &w[DV].seen, stats, &w[G].seen, &wide);
    return tt__wide_end(status, WIDES, w);
}

/* ---- element by element: a chunk is widened, computed in f32 and narrowed again before the next one, so that the f32
 * copies stay in the cache. Where layouts differ, and for formulas that are computed in double, the kernels of f32 run
 * over stand-ins. */

enum { CHUNK = 1024, HALF_BLOCK = 1 << 15 };

typedef struct half_pass {
    /* Compute n elements in f32; y may be a. */
    void (*run)(const struct half_pass *p, int64_t n, const float *a, const float *b, float *y);
    const tt__half_loops *loops;
    const uint16_t *a, *b; /* b NULL: one input */
    uint16_t *y;
    const tt__unary *unary;
    float factor;
} half_pass;

static void half_block(void *user, int64_t begin, int64_t end) {
    const half_pass *p = user;
    _Alignas(64) float a[CHUNK], b[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = end - at < CHUNK ? end - at : CHUNK;
        p->loops->widen(n, p->a + at, a);
        if (p->b)
            p->loops->widen(n, p->b + at, b);
        p->run(p, n, a, b, a);
        p->loops->narrow(n, a, p->y + at);
    }
}

/* Run p over tensors of one layout; b may be NULL. */
static tt_status run_flat(half_pass p, tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    p.loops = tt__half_loops_of(y->dtype);
    p.y = y->data;
    p.a = a->data;
    p.b = b ? b->data : NULL;
    tt__parallel_for(y->numel, HALF_BLOCK, half_block, &p);
    return TT_OK;
}

static bool are_flat(const tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return b ? TT__IS_FLAT(y, a, b) : TT__IS_FLAT(y, a);
}

/* Run p where layouts allow it, else `call` on the stand-ins w. */
#define POINTWISE(y, a, b, pass, possible, call)             \
    do {                                                     \
        tt__wide w[3];                                       \
        if ((possible) && are_flat((y), (a), (b)))           \
            return run_flat((pass), (y), (a), (b));          \
        tt_status status = tt__wide_three(w, (y), (a), (b)); \
        if (!status)                                         \
            status = (call);                                 \
        return tt__wide_end(status, 3, w);                   \
    } while (0)

#define HALF_BINARY(name)                                                                              \
    static void half_##name(const half_pass *p, int64_t n, const float *a, const float *b, float *y) { \
        (void)p;                                                                                       \
        tt__elementwise()->name(n, a, 1, b, 1, y);                                                     \
    }                                                                                                  \
    tt_status tt__cpu_##name##_half(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {            \
        POINTWISE(y, a, b, (half_pass){.run = half_##name}, true,                                      \
                  TT__F32_KERNEL(&w[0].seen, name)(&w[0].seen, &w[1].seen, &w[2].seen));               \
    }

HALF_BINARY(add)
HALF_BINARY(sub)
HALF_BINARY(mul)

static void half_scale(const half_pass *p, int64_t n, const float *a, const float *b, float *y) {
    (void)b;
    tt__elementwise()->scale(n, a, p->factor, y);
}

tt_status tt__cpu_scale_half(tt_tensor *y, const tt_tensor *x, double factor) {
    half_pass pass = {.run = half_scale, .factor = (float)factor};
    POINTWISE(y, x, NULL, pass, true, TT__F32_KERNEL(&w[0].seen, scale)(&w[0].seen, &w[1].seen, factor));
}

static void half_relu(const half_pass *p, int64_t n, const float *a, const float *b, float *y) {
    (void)p, (void)b;
    tt__elementwise()->relu(n, a, y);
}

tt_status tt__cpu_relu_half(tt_tensor *y, const tt_tensor *x) {
    half_pass pass = {.run = half_relu};
    POINTWISE(y, x, NULL, pass, true, TT__F32_KERNEL(&w[0].seen, relu)(&w[0].seen, &w[1].seen));
}

static void half_relu_backward(const half_pass *p, int64_t n, const float *a, const float *b, float *y) {
    (void)p;
    tt__elementwise()->relu_backward(n, a, b, y);
}

tt_status tt__cpu_relu_backward_half(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    half_pass pass = {.run = half_relu_backward};
    POINTWISE(dx, y, g, pass, true, TT__F32_KERNEL(&w[0].seen, relu_backward)(&w[0].seen, &w[1].seen, &w[2].seen));
}

/* ---- formulas */

static void half_unary(const half_pass *p, int64_t n, const float *a, const float *b, float *y) {
    (void)b;
    tt__pointwise()->unary[p->unary->op](n, a, (float)p->unary->a, (float)p->unary->b, y);
}

tt_status tt__cpu_unary_half(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    half_pass pass = {.run = half_unary, .unary = call};
    POINTWISE(y, x, NULL, pass, tt__pointwise()->unary[call->op],
              TT__F32_KERNEL(&w[0].seen, unary)(&w[0].seen, &w[1].seen, call));
}

static void half_unary_backward(const half_pass *p, int64_t n, const float *a, const float *b, float *y) {
    tt__pointwise()->unary_backward[p->unary->op](n, a, b, (float)p->unary->a, (float)p->unary->b, y);
}

tt_status tt__cpu_unary_backward_half(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call) {
    half_pass pass = {.run = half_unary_backward, .unary = call};
    POINTWISE(dx, v, g, pass, tt__pointwise()->unary_backward[call->op],
              TT__F32_KERNEL(&w[0].seen, unary_backward)(&w[0].seen, &w[1].seen, &w[2].seen, call));
}
