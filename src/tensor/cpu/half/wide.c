#include "tensor/cpu/half/wide.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

/* ---- conversion */

typedef struct conversion_pass {
    const tt__half_loops *loops;
    bool widen;
    const void *x;
    void *y;
} conversion_pass;

static void convert_run(const conversion_pass *p, int64_t n, const void *x, void *y) {
    if (p->widen)
        p->loops->widen(n, x, y);
    else
        p->loops->narrow(n, x, y);
}

static void convert_block(void *user, int64_t begin, int64_t end) {
    const conversion_pass *p = user;
    convert_run(p, end - begin, (const char *)p->x + begin * (p->widen ? 2 : 4),
                (char *)p->y + begin * (p->widen ? 4 : 2));
}

tt_status tt__cpu_convert(tt_tensor *y, const tt_tensor *x) {
    enum { BLOCK = 1 << 16 };
    conversion_pass p = {.widen = y->dtype == TT_F32, .x = x->data, .y = y->data};
    p.loops = p.widen ? tt__half_loops_of(x->dtype) : x->dtype == TT_F32 ? tt__half_loops_of(y->dtype) : NULL;
    if (p.loops && TT__IS_FLAT(y, x)) {
        tt__parallel_for(y->numel, BLOCK, convert_block, &p);
        return TT_OK;
    }
    tt__iter it = TT__ITER_OVER(y, x);
    if (!p.loops || (it.n > 1 && (it.step[0] != 1 || it.step[1] != 1)))
        return tt__reference_kernels[y->dtype]->convert(y, x);
    for (; it.more; tt__iter_next(&it))
        convert_run(&p, it.n, it.p[1], it.p[0]);
    return TT_OK;
}

/* ---- stand-ins */

/* x without what is repeated: sizes of 1 where strides are 0. */
static tt_tensor without_repeats(const tt_tensor *x) {
    tt_tensor once = *x;
    for (int d = 0; d < x->shape.ndim; d++)
        if (x->stride[d] == 0 && x->shape.dim[d] > 1)
            once.shape.dim[d] = 1;
    once.numel = tt__shape_numel(&once.shape);
    return once;
}

static tt_tensor as_f32(const tt_tensor *x, void *data, const int64_t *stride) {
    tt_tensor wide = *x;
    wide.dtype = TT_F32;
    wide.data = data;
    for (int d = 0; d < x->shape.ndim; d++)
        wide.stride[d] = stride[d];
    wide.contiguous = tt__shape_is_contiguous(&x->shape, stride);
    return wide;
}

tt_status tt__wide_begin(tt__wide *w, const tt_tensor *x, tt__wide_use use) {
    int64_t stride[TT_MAX_DIMS];
    *w = (tt__wide){.x = (tt_tensor *)x, .use = use};
    if (!x)
        return TT_OK;
    tt_tensor once = without_repeats(x);
    tt__shape_dense_strides(&once.shape, once.stride, stride);
    void *data = tt__pool_alloc((size_t)once.numel * sizeof(float));
    if (!data)
        return tt__fail(TT_ERR_MEMORY, "no memory for %lld elements in f32", (long long)once.numel);
    w->packed = as_f32(&once, data, stride);
    for (int d = 0; d < x->shape.ndim; d++)
        if (once.shape.dim[d] != x->shape.dim[d])
            stride[d] = 0;
    w->seen = as_f32(x, data, stride);
    return use == TT__WIDE_OUT ? TT_OK : tt__cpu_convert(&w->packed, &once);
}

tt_status tt__wide_three(tt__wide *w, tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    w[1] = w[2] = (tt__wide){.x = NULL};
    TT__TRY(tt__wide_begin(&w[0], y, TT__WIDE_OUT));
    TT__TRY(tt__wide_begin(&w[1], a, TT__WIDE_IN));
    return tt__wide_begin(&w[2], b, TT__WIDE_IN);
}

tt_status tt__wide_end(tt_status status, int n, tt__wide *w) {
    for (int i = 0; i < n && !status; i++)
        if (w[i].x && w[i].use != TT__WIDE_IN) {
            tt_tensor once = without_repeats(w[i].x);
            status = tt__cpu_convert(&once, &w[i].packed);
        }
    for (int i = 0; i < n; i++)
        tt__pool_free(w[i].packed.data);
    return status;
}
