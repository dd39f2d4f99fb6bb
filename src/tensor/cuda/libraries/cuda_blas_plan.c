#include "tensor/cuda/libraries/cuda_blas_plan.h"

#include "base/hash.h"

#include <string.h>

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

static tt__blas_key lt_key_of(const tt__blas_product *p) {
    const tt__blas_matrix *m[3] = {&p->y, &p->a, &p->b};
    tt__blas_key key = {.dtype = p->dtype,
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

static size_t lt_row_of(const tt__blas_key *key) {
    return (size_t)(tt__fnv_numbers(TT__FNV, key, sizeof *key) >> 32) % TT__BLAS_ROWS;
}

/* ---- making ---- */

static const struct {
    int type, compute;
} lt_types[TT__DTYPES] = {[TT_F32] = {TT__LT_R_32F, TT__LT_COMPUTE_32F},
                          [TT_F64] = {TT__LT_R_64F, TT__LT_COMPUTE_64F},
                          [TT_F16] = {TT__LT_R_16F, TT__LT_COMPUTE_32F},
                          [TT_BF16] = {TT__LT_R_16BF, TT__LT_COMPUTE_32F}};

static void lt_plan_end(const tt__blas_plans *plans, tt__blas_plan *plan) {
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
static int lt_layout(const tt__blas_plans *plans, const tt__blas_key *key, int i, int64_t lines, int64_t length,
                     tt__lt_object *layout, const char **function) {
    const int32_t batch = (int32_t)key->batch;
    LT_TRY(MatrixLayoutCreate, layout, lt_types[key->dtype].type, (uint64_t)length, (uint64_t)lines, key->lead[i]);
    if (batch == 1)
        return TT__LT_OK;
    LT_TRY(MatrixLayoutSetAttribute, *layout, TT__LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    LT_TRY(MatrixLayoutSetAttribute, *layout, TT__LT_LAYOUT_BATCH_STEP, &key->step[i], sizeof key->step[i]);
    return TT__LT_OK;
}

static int lt_layouts(const tt__blas_plans *plans, tt__blas_plan *plan, const char **function) {
    const tt__blas_key *k = &plan->key;
    int status = lt_layout(plans, k, 0, k->M, k->N, &plan->y, function);
    if (!status)
        status = lt_layout(plans, k, 1, k->a_turned ? k->K : k->M, k->a_turned ? k->M : k->K, &plan->a, function);
    if (!status)
        status = lt_layout(plans, k, 2, k->b_turned ? k->N : k->K, k->b_turned ? k->K : k->N, &plan->b, function);
    return status;
}

/* cuBLASLt's A is our b. */
static int lt_describe(const tt__blas_plans *plans, tt__blas_plan *plan, const void *bias, const char **function) {
    const tt__blas_key *k = &plan->key;
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

static int lt_wish(const tt__blas_plans *plans, const tt__blas_key *key, tt__lt_object wish, const char **function) {
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

/* No algorithm is no error. */
static int lt_ask(const tt__blas_plans *plans, tt__blas_plan *plan, tt__lt_object wish, const char **function) {
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

static int lt_choose(const tt__blas_plans *plans, tt__blas_plan *plan, const char **function) {
    tt__lt_object wish = NULL;
    LT_TRY(MatmulPreferenceCreate, &wish);
    int status = lt_wish(plans, &plan->key, wish, function);
    if (!status)
        status = lt_ask(plans, plan, wish, function);
    plans->lt->MatmulPreferenceDestroy(wish);
    return status;
}

static int lt_plan_begin(const tt__blas_plans *plans, tt__blas_plan *plan, const void *bias, const char **function) {
    int status = lt_layouts(plans, plan, function);
    if (!status)
        status = lt_describe(plans, plan, bias, function);
    return status ? status : lt_choose(plans, plan, function);
}

/* ---- finding ---- */

int tt__blas_plan_for(tt__blas_plans *plans, const tt__blas_product *product, tt__blas_plan **plan,
                      const char **function) {
    const tt__blas_key key = lt_key_of(product);
    tt__blas_plan *row = plans->plan[lt_row_of(&key)], *oldest = row;
    plans->products++;
    for (tt__blas_plan *p = row; p < row + TT__BLAS_PLANS_IN_ROW; p++) {
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
