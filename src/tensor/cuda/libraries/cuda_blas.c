#include "tensor/cuda/libraries/cuda_blas.h"

#include <stdlib.h>

/* cuBLASLt on one device; it lives as long as the process. */
struct tt__blas {
    pthread_mutex_t lock; /* of plans; while a product is enqueued */
    tt__blas_plans plans;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of state->blas */

static tt_status lt_fail(const tt__cuda_state *state, const tt__lt *lt, int status, const char *function) {
    return tt__cuda_host->fail(TT_ERR_SYSTEM,
                               "%s: cuBLASLt's %s() failed: %s (status %d). TT_CUDA_BLAS=own multiplies without it",
                               state->name, function, lt->GetStatusName(status), status);
}

/* What PyTorch grants as well: Hopper and later make use of more. */
static tt_status workspace_for(const tt__cuda_state *state, size_t *bytes) {
    int major = 0;
    tt_status status = tt__cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, state->index),
                                      "asking for the kind of %s", state->name);
    *bytes = (size_t)(major >= 9 ? 32 : 4) << 20;
    return status;
}

static tt_status begin_blas(tt__cuda_state *state, const tt__lt *lt) {
    size_t bytes = 0;
    tt_status status = workspace_for(state, &bytes);
    if (status)
        return status;
    struct tt__blas *blas = calloc(1, sizeof *blas);
    if (!blas)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "%s: no memory for cuBLASLt's plans", state->name);
    int result = lt->Create(&blas->plans.handle);
    if (result) {
        free(blas);
        return lt_fail(state, lt, result, "cublasLtCreate");
    }
    blas->plans.lt = lt;
    blas->plans.most_workspace = bytes;
    pthread_mutex_init(&blas->lock, NULL);
    state->blas = blas;
    return TT_OK;
}

/* The device's cuBLASLt, begun by its first product; *blas NULL: it is not used. */
static tt_status blas_of(tt__cuda_state *state, struct tt__blas **blas) {
    const tt__lt *lt;
    tt_status status = tt__lt_find(&lt);
    if (!status)
        status = tt__cuda_enter(state);
    if (!status && lt) {
        pthread_mutex_lock(&lock);
        status = state->blas ? TT_OK : begin_blas(state, lt);
        pthread_mutex_unlock(&lock);
    }
    *blas = status ? NULL : state->blas;
    return status;
}

/* alpha and beta have the type that is computed in. */
static int lt_enqueue(const tt__blas_plans *plans, const tt__blas_plan *plan, const tt__blas_product *p,
                      void *workspace, cudaStream_t stream) {
    const double one = 1, beta = p->beta;
    const float one_f32 = 1, beta_f32 = (float)p->beta;
    bool wide = p->dtype == TT_F64;
    return plans->lt->Matmul(plans->handle, plan->desc, wide ? (const void *)&one : &one_f32, p->b.p, plan->b, p->a.p,
                             plan->a, wide ? (const void *)&beta : &beta_f32, p->y.p, plan->y, p->y.p, plan->y,
                             &plan->algorithm, workspace, plan->workspace, stream);
}

/* The workspace is free for what is enqueued later. */
static tt_status run_plan(tt__cuda_state *state, const tt__blas_plans *plans, tt__blas_plan *plan,
                          const tt__blas_product *p) {
    void *workspace = plan->workspace ? tt__cuda_scratch(state, plan->workspace) : NULL;
    if (plan->workspace && !workspace)
        return tt__cuda_host->last_status();
    const char *function = "cublasLtMatmulDescSetAttribute";
    int result = TT__LT_OK;
    if (p->bias)
        result = plans->lt->MatmulDescSetAttribute(plan->desc, TT__LT_DESC_BIAS, &p->bias, sizeof p->bias);
    if (!result) {
        function = "cublasLtMatmul";
        result = lt_enqueue(plans, plan, p, workspace, tt__cuda_stream(state));
    }
    tt__cuda_scratch_free(state, workspace);
    plan->refused = result == TT__LT_NOT_SUPPORTED || result == TT__LT_ARCH_MISMATCH;
    return plan->refused ? TT_ERR_UNSUPPORTED : result ? lt_fail(state, plans->lt, result, function) : TT_OK;
}

static tt_status multiply_with(tt__cuda_state *state, tt__blas_plans *plans, const tt__blas_product *p) {
    tt__blas_plan *plan;
    const char *function;
    int result = tt__blas_plan_for(plans, p, &plan, &function);
    if (result)
        return lt_fail(state, plans->lt, result, function);
    return plan->refused ? TT_ERR_UNSUPPORTED : run_plan(state, plans, plan, p);
}

/* The library takes sizes of 32 bits. */
static bool sizes_fit(const tt__blas_product *p) {
    return p->M <= INT32_MAX && p->N <= INT32_MAX && p->K <= INT32_MAX && p->batch <= INT32_MAX;
}

tt_status tt__blas_multiply(tt__cuda_state *state, const tt__blas_product *product) {
    struct tt__blas *blas;
    tt_status status = blas_of(state, &blas);
    if (status)
        return status;
    if (!blas || !sizes_fit(product))
        return TT_ERR_UNSUPPORTED;
    pthread_mutex_lock(&blas->lock);
    status = multiply_with(state, &blas->plans, product);
    pthread_mutex_unlock(&blas->lock);
    return status;
}
