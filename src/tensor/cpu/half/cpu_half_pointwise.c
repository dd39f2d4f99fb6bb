/* Element by element in f16 and bf16: a chunk is widened, computed in f32 and narrowed again before the next one, so
 * that what is wide stays in the cache. Where layouts differ, and for formulas that are computed in double, the kernels
 * of f32 run over stand-ins (wide.h). */
#include "tensor/cpu/half/cpu_half.h"

#include "base/error.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

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

/* ---- */

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
