#include "tensor/cuda/libraries/cuda_blas.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* ---- plans: descriptions and an algorithm, kept for products of the same sizes, layouts and type ---- */

/* All that an algorithm depends on; of pointers that is their alignment. No gaps: keys are compared as bytes. */
typedef struct blas_key {
    int64_t dtype, M, N, K, batch;
    int64_t lead[3], step[3], alignment[3];     /* of y, a, b */
    int64_t a_turned, b_turned, bias_alignment; /* 0: no bias */
} blas_key;

typedef struct blas_plan {
    blas_key key;
    uint64_t used; /* number of the product that used it last; 0: there is no plan here */
    bool refused;  /* cuBLASLt has no algorithm */
    tt__lt_object desc, y, a, b;
    tt__lt_algorithm algorithm;
    size_t workspace;
} blas_plan;

/* A key's plan is in one row. In a full row the least recently used plan is replaced. */
enum { BLAS_ROWS = 64, BLAS_PLANS_IN_ROW = 4 };

typedef struct blas_plans {
    const tt__lt *lt;
    tt__lt_object handle;
    size_t most_workspace;
    uint64_t products;
    blas_plan plan[BLAS_ROWS][BLAS_PLANS_IN_ROW];
} blas_plans;

/* Call an entry point; a status other than success ends the calling function, with the name in *function. */
#define LT_TRY(call, ...)                             \
    do {                                              \
        int lt_status = plans->lt->call(__VA_ARGS__); \
        if (lt_status) {                              \
            *function = "cublasLt" #call;             \
            return lt_status;                         \
        }                                             \
    } while (0)

/* ---- keys ---- */

/* The largest power of two, up to 256, that an address is a multiple of: no algorithm asks for more. */
static int64_t alignment_of(const void *p) {
    uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
    return low == 0 || low > 256 ? 256 : (int64_t)low;
}

static blas_key lt_key_of(const tt__blas_product *p) {
    const tt__blas_matrix *m[3] = {&p->y, &p->a, &p->b};
    blas_key key = {.dtype = p->dtype,
                    .M = p->M,
                    .N = p->N,
                    .K = p->K,
                    .batch = p->batch,
                    .a_turned = p->a.turned,
                    .b_turned = p->b.turned,
                    .bias_alignment = p->bias ? alignment_of(p->bias) : 0};
    for (int i = 0; i < 3; i++) {
        key.lead[i] = m[i]->lead;
        key.step[i] = m[i]->step;
        key.alignment[i] = alignment_of(m[i]->p);
    }
    return key;
}

static size_t lt_row_of(const blas_key *key) {
    return (size_t)(tt__fnv_numbers(TT__FNV, key, sizeof *key) >> 32) % BLAS_ROWS;
}

/* ---- making ---- */

static const struct {
    int type, compute;
} lt_types[TT__DTYPES] = {[TT_F32] = {TT__LT_R_32F, TT__LT_COMPUTE_32F},
                          [TT_F64] = {TT__LT_R_64F, TT__LT_COMPUTE_64F},
                          [TT_F16] = {TT__LT_R_16F, TT__LT_COMPUTE_32F},
                          [TT_BF16] = {TT__LT_R_16BF, TT__LT_COMPUTE_32F}};

static void lt_plan_end(const blas_plans *plans, blas_plan *plan) {
    const tt__lt *lt = plans->lt;
    const tt__lt_object layouts[] = {plan->y, plan->a, plan->b};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            lt->MatrixLayoutDestroy(layouts[i]);
    if (plan->desc)
        lt->MatmulDescDestroy(plan->desc);
    memset(plan, 0, sizeof *plan);
}

/* Describe a matrix of `lines` lines of `length` elements: columns, to cuBLASLt. */
static int lt_layout(const blas_plans *plans, const blas_key *key, int i, int64_t lines, int64_t length,
                     tt__lt_object *layout, const char **function) {
    const int32_t batch = (int32_t)key->batch;
    LT_TRY(MatrixLayoutCreate, layout, lt_types[key->dtype].type, (uint64_t)length, (uint64_t)lines, key->lead[i]);
    if (batch == 1)
        return TT__LT_OK;
    LT_TRY(MatrixLayoutSetAttribute, *layout, TT__LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    LT_TRY(MatrixLayoutSetAttribute, *layout, TT__LT_LAYOUT_BATCH_STEP, &key->step[i], sizeof key->step[i]);
    return TT__LT_OK;
}

static int lt_layouts(const blas_plans *plans, blas_plan *plan, const char **function) {
    const blas_key *k = &plan->key;
    int status = lt_layout(plans, k, 0, k->M, k->N, &plan->y, function);
    if (!status)
        status = lt_layout(plans, k, 1, k->a_turned ? k->K : k->M, k->a_turned ? k->M : k->K, &plan->a, function);
    if (!status)
        status = lt_layout(plans, k, 2, k->b_turned ? k->N : k->K, k->b_turned ? k->K : k->N, &plan->b, function);
    return status;
}

/* cuBLASLt's A is our b. */
static int lt_describe(const blas_plans *plans, blas_plan *plan, const void *bias, const char **function) {
    const blas_key *k = &plan->key;
    const int32_t turn_b = (int32_t)k->b_turned, turn_a = (int32_t)k->a_turned;
    const uint32_t epilogue = TT__LT_EPILOGUE_BIAS;
    LT_TRY(MatmulDescCreate, &plan->desc, lt_types[k->dtype].compute, k->dtype == TT_F64 ? TT__LT_R_64F : TT__LT_R_32F);
    LT_TRY(MatmulDescSetAttribute, plan->desc, TT__LT_DESC_TURN_A, &turn_b, sizeof turn_b);
    LT_TRY(MatmulDescSetAttribute, plan->desc, TT__LT_DESC_TURN_B, &turn_a, sizeof turn_a);
    if (!bias)
        return TT__LT_OK;
    LT_TRY(MatmulDescSetAttribute, plan->desc, TT__LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    LT_TRY(MatmulDescSetAttribute, plan->desc, TT__LT_DESC_BIAS, &bias, sizeof bias);
    return TT__LT_OK;
}

static int lt_wish(const blas_plans *plans, const blas_key *key, tt__lt_object wish, const char **function) {
    static const int attribute[] = {TT__LT_WISH_ALIGNMENT_A, TT__LT_WISH_ALIGNMENT_B, TT__LT_WISH_ALIGNMENT_C,
                                    TT__LT_WISH_ALIGNMENT_D};
    const int64_t alignment[] = {key->alignment[2], key->alignment[1], key->alignment[0], key->alignment[0]};
    const uint64_t most = plans->most_workspace;
    const uint32_t schemes = TT__LT_SCHEME_COMPUTE_TYPE; /* others round parts of 16-bit sums to their type */
    LT_TRY(MatmulPreferenceSetAttribute, wish, TT__LT_WISH_WORKSPACE, &most, sizeof most);
    LT_TRY(MatmulPreferenceSetAttribute, wish, TT__LT_WISH_SCHEMES, &schemes, sizeof schemes);
    for (int i = 0; i < 4; i++) {
        const uint32_t bytes = (uint32_t)alignment[i];
        LT_TRY(MatmulPreferenceSetAttribute, wish, attribute[i], &bytes, sizeof bytes);
    }
    return TT__LT_OK;
}

/* Ask for an algorithm; none is no error. */
static int lt_ask(const blas_plans *plans, blas_plan *plan, tt__lt_object wish, const char **function) {
    tt__lt_choice choice;
    int count = 0;
    memset(&choice, 0, sizeof choice);
    int status = plans->lt->MatmulAlgoGetHeuristic(plans->handle, plan->desc, plan->b, plan->a, plan->y, plan->y, wish,
                                                   1, &choice, &count);
    bool none = status == TT__LT_NOT_SUPPORTED || status == TT__LT_ARCH_MISMATCH;
    plan->refused = none || (!status && (count < 1 || choice.status || choice.workspace > plans->most_workspace));
    plan->algorithm = choice.algorithm;
    plan->workspace = choice.workspace;
    *function = "cublasLtMatmulAlgoGetHeuristic";
    return none ? TT__LT_OK : status;
}

static int lt_choose(const blas_plans *plans, blas_plan *plan, const char **function) {
    tt__lt_object wish = NULL;
    LT_TRY(MatmulPreferenceCreate, &wish);
    int status = lt_wish(plans, &plan->key, wish, function);
    if (!status)
        status = lt_ask(plans, plan, wish, function);
    plans->lt->MatmulPreferenceDestroy(wish);
    return status;
}

static int lt_plan_begin(const blas_plans *plans, blas_plan *plan, const void *bias, const char **function) {
    int status = lt_layouts(plans, plan, function);
    if (!status)
        status = lt_describe(plans, plan, bias, function);
    return status ? status : lt_choose(plans, plan, function);
}

/* ---- finding ---- */

/* Find the plan for a product, or make it; it is good until the next call. Not thread-safe. The result is
 * cublasStatus_t, and *function then the one that failed. */
static int blas_plan_for(blas_plans *plans, const tt__blas_product *product, blas_plan **plan, const char **function) {
    const blas_key key = lt_key_of(product);
    blas_plan *row = plans->plan[lt_row_of(&key)], *oldest = row;
    plans->products++;
    for (blas_plan *p = row; p < row + BLAS_PLANS_IN_ROW; p++) {
        if (p->used && !memcmp(&p->key, &key, sizeof key)) {
            p->used = plans->products;
            *plan = p;
            return TT__LT_OK;
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    lt_plan_end(plans, oldest);
    oldest->key = key;
    int status = lt_plan_begin(plans, oldest, product->bias, function);
    if (status) {
        lt_plan_end(plans, oldest);
        return status;
    }
    oldest->used = plans->products;
    *plan = oldest;
    return TT__LT_OK;
}

/* cuBLASLt on one device; it lives as long as the process. */
struct tt__blas {
    pthread_mutex_t lock; /* of plans; while a product is enqueued */
    blas_plans plans;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of state->blas */

static tt_status lt_fail(const tt__cuda_state *state, const tt__lt *lt, int status, const char *function) {
    return tt__cuda_host->fail(TT_ERR_SYSTEM,
                               "%s: cuBLASLt's %s() failed: %s (status %d). TT_CUDA_BLAS=own multiplies without it",
                               state->name, function, lt->GetStatusName(status), status);
}

/* As much as PyTorch gives: Hopper and later make use of more. */
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
static int lt_enqueue(const blas_plans *plans, const blas_plan *plan, const tt__blas_product *p, void *workspace,
                      cudaStream_t stream) {
    const double one = 1, beta = p->beta;
    const float one_f32 = 1, beta_f32 = (float)p->beta;
    bool wide = p->dtype == TT_F64;
    return plans->lt->Matmul(plans->handle, plan->desc, wide ? (const void *)&one : &one_f32, p->b.p, plan->b, p->a.p,
                             plan->a, wide ? (const void *)&beta : &beta_f32, p->y.p, plan->y, p->y.p, plan->y,
                             &plan->algorithm, workspace, plan->workspace, stream);
}

/* Enqueue a plan. Its workspace is given back at once, for work that is enqueued later. */
static tt_status run_plan(tt__cuda_state *state, const blas_plans *plans, blas_plan *plan, const tt__blas_product *p) {
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

static tt_status multiply_with(tt__cuda_state *state, blas_plans *plans, const tt__blas_product *p) {
    blas_plan *plan;
    const char *function;
    int result = blas_plan_for(plans, p, &plan, &function);
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
