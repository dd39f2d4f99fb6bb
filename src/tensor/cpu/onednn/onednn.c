/* Products of f32 by oneDNN's dnnl_sgemm, which is the same in versions 2 and 3. */
#include "tensor/cpu/onednn/onednn.h"

#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/process/threads.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/onednn/onednn_library.h"
#include "tensor/device/parallel.h"

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

/* y (M,N) = a (M,K) b (K,N) + beta y, y by rows. */
typedef struct product {
    int64_t M, N, K, ldy;
    layout la, lb;
    const float *a, *b;
    float *y, beta;
} product;

/* Hold signals: oneDNN's kernels point the stack pointer into memory of their own, where a handler would push its
 * frame. */
static tt_status sgemm_undisturbed(const product *p) {
    sigset_t before;
    tt__signals_hold(&before);
    dnnl_status_t status = tt__onednn_get()->dnnl_sgemm(p->la.trans, p->lb.trans, p->M, p->N, p->K, 1.0f, p->a,
                                                        p->la.ld, p->b, p->lb.ld, p->beta, p->y, p->ldy);
    tt__signals_release(&before);
    if (status == dnnl_success)
        return TT_OK;
    return tt__fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                    "oneDNN could not multiply (%lld, %lld) by (%lld, %lld): status %d", (long long)p->M,
                    (long long)p->K, (long long)p->K, (long long)p->N, (int)status);
}

/* Where the first factor lies by columns, or the second by rows, oneDNN's product for AVX2 reads a few elements of each
 * of K lines in turn. Lines whose distance is a multiple of 1 KiB then share a few sets of the first cache, and the
 * product takes up to twice as long. Such a factor is copied first, with its lines further apart. It is copied in
 * pieces, each a product of its own, so that a large weight is never in memory twice. If both factors are such, the
 * smaller one is copied whole. */
enum { SHARING = 256, APART = 16, FEW_LINES = 16, FEW_USES = 48, COPIED_LINES = 32, SPREAD_FLOATS = 1 << 17 };

typedef struct spread {
    const float *from;
    float *to;
    int64_t length, from_ld, to_ld;
} spread;

static void spread_lines(void *user, int64_t begin, int64_t end) {
    const spread *s = user;
    for (int64_t i = begin; i < end; i++)
        memcpy(s->to + i * s->to_ld, s->from + i * s->from_ld, (size_t)s->length * sizeof(float));
}

/* Does it pay to copy a factor whose elements are used `uses` times each? */
static bool wants_spreading(bool across, int64_t ld, int64_t lines, int64_t uses) {
    return across && ld % SHARING == 0 && lines >= FEW_LINES && uses >= FEW_USES &&
           tt__cpu_level_get() < TT__CPU_AVX512;
}

/* Run p in pieces of `most` columns of b, or rows of a, and copy each piece first. */
static tt_status spread_pieces(const product *p, bool of_b, int64_t most, tt_status (*run)(const product *p)) {
    int64_t length = of_b ? p->N : p->M;
    spread s = {.from_ld = of_b ? p->lb.ld : p->la.ld};
    s.to_ld = (most + APART - 1) / APART * APART + (most % SHARING ? 0 : APART);
    s.to = tt__pool_alloc((size_t)(p->K * s.to_ld) * sizeof(float));
    if (!s.to)
        return tt__fail(TT_ERR_MEMORY, "no memory for the copy of a (%lld, %lld) factor", (long long)p->K,
                        (long long)most);
    tt_status status = TT_OK;
    for (int64_t at = 0; at < length && !status; at += most) {
        product piece = *p;
        s.from = (of_b ? p->b : p->a) + at;
        s.length = length - at < most ? length - at : most;
        tt__parallel_for(p->K, COPIED_LINES, spread_lines, &s);
        *(of_b ? &piece.b : &piece.a) = s.to;
        *(of_b ? &piece.lb : &piece.la) = (layout){of_b ? 'N' : 'T', s.to_ld};
        *(of_b ? &piece.N : &piece.M) = s.length;
        piece.y += of_b ? at : at * p->ldy;
        status = run(&piece);
    }
    tt__pool_free(s.to);
    return status;
}

/* Return the length of a piece of `length`: enough to keep all threads busy, and the same for all pieces. */
static int64_t spread_length(const product *p, int64_t length) {
    int64_t threads = tt_get_num_threads(), most = threads * SPREAD_FLOATS / p->K;
    most = most < threads * SHARING ? threads * SHARING : most;
    int64_t pieces = (length + most - 1) / most, even = (length + pieces - 1) / pieces;
    return (even + APART - 1) / APART * APART;
}

static tt_status spread_a(const product *p) {
    return spread_pieces(p, false, spread_length(p, p->M), sgemm_undisturbed);
}

static tt_status spread_b(const product *p) {
    return spread_pieces(p, true, spread_length(p, p->N), sgemm_undisturbed);
}

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    if (!tt__onednn_get())
        return tt_last_status();
    product p = {.M = y->shape.dim[0], .N = y->shape.dim[1], .K = a->shape.dim[1], .ldy = layout_of(y).ld};
    p.la = layout_of(a);
    p.lb = layout_of(b);
    p.a = a->data;
    p.b = b->data;
    p.y = y->data;
    p.beta = (float)beta;
    tt__parallel_prepare();
    bool of_a = wants_spreading(p.la.trans == 'T', p.la.ld, p.K, p.N);
    bool of_b = wants_spreading(p.lb.trans == 'N', p.lb.ld, p.K, p.M);
    if (of_a && of_b)
        return p.M <= p.N ? spread_pieces(&p, false, p.M, spread_b) : spread_pieces(&p, true, p.N, spread_a);
    return of_a ? spread_a(&p) : of_b ? spread_b(&p) : sgemm_undisturbed(&p);
}
