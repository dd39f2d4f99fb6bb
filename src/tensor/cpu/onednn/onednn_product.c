/* Products by oneDNN's primitives. One is made for each kind of product (shapes, layouts, type, threads) and kept by
 * its thread. Scratchpads come from the pool for the length of a call. */
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
    tt__signals_hold(&before); /* as for any product: see onednn.c */
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
