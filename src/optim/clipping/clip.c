/* Gradient clipping, by the norm of all of them and by value. */
#include "optim/clipping/clip.h"

#include "autograd/sparse_grad.h"
#include "base/args.h"
#include "base/error.h"
#include "optim/clipping/clip_pass.h"
#include "optim/clipping/grad_total.h"
#include "optim/optimizer.h"
#include "tensor/core/named_tensors.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <math.h>
#include <tutti/optim.h>

/* ---- changes of one tensor, in blocks ---- */

typedef struct clip_pass {
    const tt__clip_loops *loops;
    char *data;
    size_t size;  /* of an element */
    double value; /* factor or limit */
} clip_pass;

static void clip_scale_block(void *user, int64_t begin, int64_t end) {
    const clip_pass *pass = user;
    pass->loops->scale(pass->data + (size_t)begin * pass->size, end - begin, pass->value);
}

static void clip_clamp_block(void *user, int64_t begin, int64_t end) {
    const clip_pass *pass = user;
    pass->loops->clamp(pass->data + (size_t)begin * pass->size, end - begin, pass->value);
}

/* How gradients are changed. */
typedef struct grad_change {
    void (*here)(void *user, int64_t begin, int64_t end); /* contiguous memory on the host */
    tt_status (*far)(const char *who, tt_tensor *x, double value);
} grad_change;

static tt_status scale_far(const char *who, tt_tensor *x, double factor) { return tt__scale_out(who, x, x, factor); }

static tt_status clamp_far(const char *who, tt_tensor *x, double most) {
    const tt__unary clamp = {.op = TT__CLAMP, .a = -most, .b = most};
    return tt__unary_out(who, x, x, &clamp);
}

static const grad_change scaling = {clip_scale_block, scale_far}, clamping = {clip_clamp_block, clamp_far};

/* Change x, in any layout and on any device. */
static tt_status change(const char *who, tt_tensor *x, const grad_change *how, double value) {
    tt_status status = TT_OK;
    if (tt__device_is_host(tt_tensor_device(x))) {
        tt_tensor *flat = tt_contiguous(x);
        if (!flat)
            return tt_last_status();
        clip_pass pass = {
            .loops = tt__clip_loops_of(x->dtype), .data = flat->data, .size = tt_dtype_size(x->dtype), .value = value};
        tt__parallel_for(flat->numel, TT__CLIP_BLOCK, how->here, &pass);
        if (flat != x)
            return tt_copy(x, flat);
    } else {
        status = how->far(who, x, value);
    }
    tt__storage_touch(x->storage);
    return status;
}

/* ---- gradients of a list ---- */

static tt_status check_grads(const char *who, const tt_named_tensors *params) {
    if (!params)
        return tt__fail_argument("%s: expected a list of parameters, got NULL", who);
    TT__TRY(tt__named_tensors_check(who, params, false));
    for (int64_t i = 0; i < params->count; i++) {
        const tt_tensor *grad = tt__grad_values(params->tensors[i]);
        if (grad && !tt__clip_loops_of(grad->dtype))
            return tt__fail(TT_ERR_DTYPE, "%s: expected gradients f32 or f64, got number %lld %s", who, (long long)i,
                            TT__DESCRIBE(grad));
    }
    return TT_OK;
}

/* Measure all gradients: PyTorch's type is that of f32, unless one is f64. */
static tt_status measure_all(const char *who, const tt_named_tensors *params, double norm_type, double *measure,
                             bool *is_f64) {
    tt__grad_total total = {.who = who, .p = norm_type};
    for (int64_t i = 0; i < params->count; i++) {
        tt_tensor *grad = tt__grad_values(params->tensors[i]);
        if (!grad)
            continue;
        TT__TRY(tt__grad_total_measure(&total, grad));
        *is_f64 = *is_f64 || grad->dtype == TT_F64;
    }
    TT__TRY(tt__grad_total_end(&total));
    *measure = total.value;
    return TT_OK;
}

static double norm_of_measure(double measure, double norm_type) {
    return isinf(norm_type) ? measure : norm_type == 2 ? sqrt(measure) : pow(measure, 1 / norm_type);
}

static tt_status change_grads(const char *who, const tt_named_tensors *params, const grad_change *how, double value) {
    for (int64_t i = 0; i < params->count; i++) {
        tt_tensor *grad = tt__grad_values(params->tensors[i]);
        if (grad)
            TT__TRY(change(who, grad, how, value));
    }
    return TT_OK;
}

/* `own`: how it goes so far; if not well, slices still take their part in what is collective. */
static tt_status clip_by_norm(const char *by_norm, const tt_clip_grad_norm_args *a, double norm_type,
                              const tt_optimizer *sharded, tt_status own) {
    double measure[1 + TT__JOIN_ROOM] = {0};
    bool is_f64 = false;
    if (!own)
        own = measure_all(by_norm, a->params, norm_type, measure, &is_f64);
    if (sharded)
        own = sharded->shards->join(sharded->shards_user, by_norm, own, measure, 1, isinf(norm_type));
    TT__TRY(own);
    double norm = norm_of_measure(measure[0], norm_type);
    if (!is_f64)
        norm = (double)(float)norm;
    if (a->total_norm)
        *a->total_norm = norm;
    if (a->error_if_nonfinite && !isfinite(norm))
        return tt__fail(TT_ERR_INVALID, "%s: the norm of the gradients is %g, so they can't be clipped", by_norm, norm);
    double factor = is_f64 ? a->max_norm / (norm + 1e-6) : (double)((float)a->max_norm / ((float)norm + 1e-6F));
    return factor >= 1 ? TT_OK : change_grads(by_norm, a->params, &scaling, factor);
}

static tt_status check_clip(const char *who, const tt_clip_grad_norm_args *a, double norm_type) {
    TT__TRY(check_grads(who, a->params));
    if (!(norm_type > 0))
        return tt__fail(TT_ERR_INVALID, "%s: expected a norm_type above 0, or INFINITY, got %g", who, norm_type);
    if (!(a->max_norm >= 0))
        return tt__fail(TT_ERR_INVALID, "%s: expected a max_norm of at least 0, got %g", who, a->max_norm);
    return TT_OK;
}

tt_status tt__clip_grad_norm(const char *who, const tt_clip_grad_norm_args *a, const tt_optimizer *sharded,
                             tt_status own) {
    const double norm_type = a->norm_type == 0 ? 2 : a->norm_type;
    int scope = tt_scope_begin(); /* ends copies of gradients in other layouts */
    if (!own)
        own = scope ? check_clip(who, a, norm_type) : tt_last_status();
    tt_status status = clip_by_norm(who, a, norm_type, sharded, own);
    tt_scope_end(scope);
    return status;
}

tt_status tt_clip_grad_norm_with(const tt_clip_grad_norm_args *args, size_t size) {
    tt_clip_grad_norm_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__clip_grad_norm("tt_clip_grad_norm_", &a, NULL, TT_OK);
}

tt_status tt_clip_grad_value_(const tt_named_tensors *params, double clip_value) {
    static const char who[] = "tt_clip_grad_value_";
    TT__TRY(check_grads(who, params));
    if (!(clip_value >= 0))
        return tt__fail(TT_ERR_INVALID, "%s: expected a clip_value of at least 0, got %g", who, clip_value);
    int scope = tt_scope_begin();
    if (!scope)
        return tt_last_status();
    tt_status status = change_grads(who, params, &clamping, clip_value);
    tt_scope_end(scope);
    return status;
}
