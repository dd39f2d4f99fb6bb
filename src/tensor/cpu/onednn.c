/* dnnl_sgemm is the same in versions 2 and 3. */
#include "tensor/cpu/onednn.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/held_signals.h"
#include "tensor/cpu/onednn_load.h"
#include "tensor/parallel.h"
#include "tensor/pool.h"

#include <string.h>

/* A matrix's layout as oneDNN takes it: stored by rows ('N') or by columns ('T'), and the distance of two lines. */
typedef struct layout {
    char trans;
    dnnl_dim_t ld;
} layout;

static layout layout_of(const tt_tensor *m) {
    int64_t rows = m->shape.dim[0], cols = m->shape.dim[1];
    if (tt__matrix_is_stored(m, 0))
        return (layout){'N', rows == 1 ? cols : m->stride[0]};
    return (layout){'T', cols == 1 ? rows : m->stride[1]};
}

/* Where the first factor lies by columns, or the second by rows, oneDNN's product for AVX2 reads a few elements of each
 * of many lines in turn. Lines whose distance is a multiple of 1 KiB then share a few sets of the first cache, and the
 * product takes up to twice as long. Such a factor is copied first, with its lines further apart. */
enum { SHARING = 256, APART = 16, FEW_LINES = 16, FEW_USES = 48, COPIED_LINES = 32 };

typedef struct spread {
    const float *from;
    float *to; /* NULL: not needed */
    int64_t lines, length, from_ld, to_ld;
} spread;

static void spread_lines(void *user, int64_t begin, int64_t end) {
    const spread *s = user;
    for (int64_t i = begin; i < end; i++)
        memcpy(s->to + i * s->to_ld, s->from + i * s->from_ld, (size_t)s->length * sizeof(float));
}

/* Spread a factor's lines if that pays; each of its elements is used `uses` times. */
static tt_status spread_factor(spread *s, const tt_tensor *m, layout *lies, bool across, int64_t uses) {
    int64_t rows = m->shape.dim[0], cols = m->shape.dim[1];
    bool by_rows = lies->trans == 'N';
    *s = (spread){m->data, NULL, by_rows ? rows : cols, by_rows ? cols : rows, lies->ld, 0};
    if (!across || lies->ld % SHARING || s->lines < FEW_LINES || uses < FEW_USES ||
        tt__cpu_level_get() >= TT__CPU_AVX512)
        return TT_OK;
    s->to_ld = (s->length + APART - 1) / APART * APART + (s->length % SHARING ? 0 : APART);
    s->to = tt__pool_alloc((size_t)(s->lines * s->to_ld) * sizeof(float));
    if (!s->to)
        return tt__fail(TT_ERR_MEMORY, "no memory for the copy of a (%lld, %lld) factor", (long long)rows,
                        (long long)cols);
    tt__parallel_for(s->lines, COPIED_LINES, spread_lines, s);
    s->from = s->to;
    lies->ld = s->to_ld;
    return TT_OK;
}

/* Its kernels use the stack pointer for memory of their own: what a handler pushed would go into the heap. */
static dnnl_status_t sgemm_undisturbed(layout la, layout lb, int64_t M, int64_t N, int64_t K, const float *a,
                                       const float *b, float beta, float *y, int64_t ldy) {
    sigset_t before;
    tt__signals_hold(&before);
    dnnl_status_t status =
        tt__onednn_get()->dnnl_sgemm(la.trans, lb.trans, M, N, K, 1.0f, a, la.ld, b, lb.ld, beta, y, ldy);
    tt__signals_release(&before);
    return status;
}

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    if (!tt__onednn_get())
        return tt_last_status();
    int64_t M = y->shape.dim[0], N = y->shape.dim[1], K = a->shape.dim[1];
    layout la = layout_of(a), lb = layout_of(b), ly = layout_of(y);
    spread sa, sb = {0};
    tt__parallel_prepare();
    tt_status status = spread_factor(&sa, a, &la, la.trans == 'T', N);
    if (!status)
        status = spread_factor(&sb, b, &lb, lb.trans == 'N', M);
    dnnl_status_t product = dnnl_success;
    if (!status)
        product = sgemm_undisturbed(la, lb, M, N, K, sa.from, sb.from, (float)beta, y->data, ly.ld);
    tt__pool_free(sb.to);
    tt__pool_free(sa.to);
    if (product != dnnl_success)
        return tt__fail(product == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                        "oneDNN could not multiply (%lld, %lld) by (%lld, %lld): status %d", (long long)M, (long long)K,
                        (long long)K, (long long)N, (int)product);
    return status;
}
