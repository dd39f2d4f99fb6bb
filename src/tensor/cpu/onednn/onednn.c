/* Products by oneDNN. */
#include "tensor/cpu/onednn/onednn.h"

#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/process/threads.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/onednn/onednn_library.h"
#include "tensor/device/parallel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- of f32, by dnnl_sgemm, which is the same in versions 2 and 3 ---- */

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

/* ---- by primitives. One is made for each kind of product (shapes, layouts, type, threads) and kept by its thread.
 * Scratchpads come from the pool for the length of a call. ---- */

static bool cpu_has_bf16(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return tt__cpu_level_get() == TT__CPU_AVX512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1U << 5);
#else
    return false;
#endif
}

bool tt__onednn_takes_bf16(void) {
    enum { NOT_ASKED, NO, YES };
    static _Atomic int answer; /* in a virtual machine asking takes microseconds */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == NOT_ASKED) {
        known = cpu_has_bf16() ? YES : NO;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == YES;
}

/* What a primitive is found by. Strides of a (M,K), b (K,N) and y (M,N). */
typedef struct product_key {
    int64_t M, N, K, a[2], b[2], y[2];
    int32_t dtype, to, adds, threads; /* dtype: of a and b; to: of y */
} product_key;

enum { PRODUCT_A, PRODUCT_B, PRODUCT_Y, PRODUCT_BIAS, PRODUCT_SCRATCH, PRODUCT_MEMORIES };

typedef struct product_primitive {
    product_key key;
    dnnl_primitive_t run;
    dnnl_memory_t memory[PRODUCT_MEMORIES]; /* the last two NULL: not used */
    size_t scratch_bytes;
} product_primitive;

static void product_free(void *primitive) {
    const tt__onednn *onednn = tt__onednn_get();
    product_primitive *p = primitive;
    for (int i = 0; i < PRODUCT_MEMORIES; i++)
        if (p->memory[i])
            onednn->dnnl_memory_destroy(p->memory[i]);
    if (p->run)
        onednn->dnnl_primitive_destroy(p->run);
    free(p);
}

static const tt__onednn_kind product_kind = {sizeof(product_key), product_free};

/* ---- making one */

static product_key product_key_of(const tt_tensor *y, const tt_tensor *a, const tt_tensor *b, tt__product_adds adds) {
    product_key key;
    memset(&key, 0, sizeof key);
    key.M = y->shape.dim[0];
    key.N = y->shape.dim[1];
    key.K = a->shape.dim[1];
    memcpy(key.a, a->stride, sizeof key.a);
    memcpy(key.b, b->stride, sizeof key.b);
    memcpy(key.y, y->stride, sizeof key.y);
    key.dtype = (int32_t)a->dtype;
    key.to = (int32_t)y->dtype;
    key.adds = (int32_t)adds;
    key.threads = tt__parallel_inside() ? 1 : tt_get_num_threads(); /* scratchpads grow with it */
    return key;
}

/* Describe a matrix. Where a size is 1 its stride does not matter, but oneDNN wants one that fits. */
static dnnl_status_t product_describe(tt__onednn_memory *to, int32_t dtype, int64_t rows, int64_t cols,
                                      const int64_t *stride) {
    int64_t fit[2] = {stride[0], stride[1]};
    if (rows == 1)
        fit[0] = cols * (cols == 1 ? 1 : stride[1]);
    if (cols == 1)
        fit[1] = rows == 1 ? 1 : stride[0] == 1 ? rows : 1;
    return tt__onednn_memory_make(to, dtype == TT_BF16 ? dnnl_bf16 : dnnl_f32, 2, (int64_t[]){rows, cols}, fit);
}

static dnnl_status_t product_memory(product_primitive *p, int which, tt__onednn_memory_ref description) {
    return tt__onednn_get()->dnnl_memory_create(&p->memory[which], description, tt__onednn_engine(), NULL);
}

static dnnl_status_t product_make(product_primitive *p, const tt__onednn_memory *m) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = tt__onednn_product_describe(&pd, m, (tt__product_adds)p->key.adds, tt__onednn_engine());
    if (status)
        return status;
    tt__onednn_memory_ref scratch = onednn->dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = onednn->dnnl_memory_desc_get_size(scratch);
    status = onednn->dnnl_primitive_create(&p->run, pd);
    for (int i = PRODUCT_A; i <= (p->key.adds == TT__ADDS_BIAS ? PRODUCT_BIAS : PRODUCT_Y) && !status; i++)
        status = product_memory(p, i, TT__ONEDNN_REF(m[i]));
    if (!status && p->scratch_bytes)
        status = product_memory(p, PRODUCT_SCRATCH, scratch);
    onednn->dnnl_primitive_desc_destroy(pd);
    return status;
}

static dnnl_status_t product_add(tt__onednn_cache *cache, const product_key *key, product_primitive **made) {
    product_primitive *p = calloc(1, sizeof *p);
    tt__onednn_memory m[PRODUCT_SCRATCH];
    memset(m, 0, sizeof m);
    if (!p)
        return dnnl_out_of_memory;
    p->key = *key;
    dnnl_status_t status = product_describe(&m[PRODUCT_A], key->dtype, key->M, key->K, key->a);
    if (!status)
        status = product_describe(&m[PRODUCT_B], key->dtype, key->K, key->N, key->b);
    if (!status)
        status = product_describe(&m[PRODUCT_Y], key->to, key->M, key->N, key->y);
    if (!status && key->adds == TT__ADDS_BIAS)
        status = product_describe(&m[PRODUCT_BIAS], key->dtype, 1, key->N, (const int64_t[]){key->N, 1});
    if (!status)
        status = product_make(p, m);
    for (int i = 0; i < PRODUCT_SCRATCH; i++)
        tt__onednn_memory_free(&m[i]);
    if (status) {
        product_free(p);
        return status;
    }
    tt__onednn_cache_add(cache, &product_kind, *made = p);
    return dnnl_success;
}

/* ---- running it */

static dnnl_status_t product_run(dnnl_stream_t stream, const product_primitive *p, void *const *at) {
    static const int argument[PRODUCT_MEMORIES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                                   DNNL_ARG_SCRATCHPAD};
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_exec_arg_t args[PRODUCT_MEMORIES];
    dnnl_status_t status = dnnl_success;
    int n = 0;
    for (int i = 0; i < PRODUCT_MEMORIES && !status; i++)
        if (p->memory[i]) {
            status = onednn->dnnl_memory_set_data_handle(p->memory[i], at[i]);
            args[n++] = (dnnl_exec_arg_t){argument[i], p->memory[i]};
        }
    if (!status)
        status = onednn->dnnl_primitive_execute(p->run, stream, n, args);
    return status ? status : onednn->dnnl_stream_wait(stream);
}

/* `bias` NULL: none. */
static dnnl_status_t product_cached(tt__onednn_cache *cache, tt_tensor *y, const tt_tensor *a, const tt_tensor *b,
                                    const tt_tensor *bias, tt__product_adds adds) {
    product_key key = product_key_of(y, a, b, adds);
    product_primitive *p = tt__onednn_cache_find(cache, &product_kind, &key);
    dnnl_status_t status = p ? dnnl_success : product_add(cache, &key, &p);
    if (status)
        return status;
    void *scratch = p->scratch_bytes ? tt__pool_alloc(p->scratch_bytes) : NULL;
    if (p->scratch_bytes && !scratch)
        return dnnl_out_of_memory;
    status = product_run(tt__onednn_stream(cache), p,
                         (void *[]){a->data, b->data, y->data, bias ? bias->data : NULL, scratch});
    tt__pool_free(scratch);
    return status;
}

static tt_status product_of(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias,
                            tt__product_adds adds) {
    if (!tt__onednn_get())
        return tt_last_status();
    tt__parallel_prepare();
    tt__onednn_cache *cache = NULL;
    sigset_t before;
    tt__signals_hold(&before); /* as for any product: see sgemm_undisturbed() */
    dnnl_status_t status = tt__onednn_cache_get(&cache);
    if (!status)
        status = product_cached(cache, y, a, b, bias, adds);
    tt__signals_release(&before);
    if (!status)
        return TT_OK;
    if (status == dnnl_unimplemented && a->dtype == TT_BF16)
        return TT_ERR_UNSUPPORTED;
    return tt__fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                    "oneDNN could not multiply %s by %s: status %d", TT__SHAPE_TEXT(&a->shape),
                    TT__SHAPE_TEXT(&b->shape), (int)status);
}

tt_status tt__onednn_product(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    return product_of(y, a, b, NULL, beta != 0 ? TT__ADDS_TO_Y : TT__ADDS_NOTHING);
}

tt_status tt__onednn_product_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    return product_of(y, a, b, bias, TT__ADDS_BIAS);
}
