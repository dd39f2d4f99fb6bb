/* Measuring all gradients, and clipping them by their norm or by value. */
#include "optim/clipping/clip.h"

#include "autograd/leaf.h"
#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"
#include "tensor/device/capture.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <tutti/optim.h>

#include <math.h>

const tt__clip_loops *tt__clip_loops_of(tt_dtype dtype) {
    const tt__clip_kernels *kernels = TT__LEVEL_CHOOSE(tt__clip_kernels_of_types);
    return dtype == TT_F32 ? &kernels->f32 : dtype == TT_F64 ? &kernels->f64 : NULL;
}

/* ---- measuring ---- */

/* Blocks that are measured before their results are added up. */
enum { CLIP_ROUND = 64 };

typedef struct measure_pass {
    const tt__clip_loops *loops;
    char *data;
    size_t size;  /* of an element */
    double value; /* norm_type */
    double part[CLIP_ROUND];
} measure_pass;

static double measure_range(const measure_pass *pass, int64_t begin, int64_t n) {
    const void *x = pass->data + (size_t)begin * pass->size;
    if (isinf(pass->value))
        return pass->loops->largest(x, n);
    return pass->value == 2 ? pass->loops->sum_of_squares(x, n) : pass->loops->sum_of_powers(x, n, pass->value);
}

static void measure_block(void *user, int64_t begin, int64_t end) {
    measure_pass *pass = user;
    pass->part[begin / TT__CLIP_BLOCK] = measure_range(pass, begin, end - begin);
}

/* Join two measures: the larger one, or the sum. */
static double joined(double norm_type, double a, double b) {
    return !isinf(norm_type) ? a + b : b > a || b != b ? b : a;
}

/* Return the sum of |x|^p, or, of an infinite p, the largest, of contiguous memory on the host. The same bits for any
 * number of threads. */
static double clip_term(const tt_tensor *x, double norm_type) {
    measure_pass pass = {.loops = tt__clip_loops_of(x->dtype), .size = tt_dtype_size(x->dtype), .value = norm_type};
    const int64_t round = (int64_t)CLIP_ROUND * TT__CLIP_BLOCK;
    double all = 0;
    for (int64_t at = 0; at < x->numel; at += round) {
        const int64_t n = x->numel - at < round ? x->numel - at : round;
        pass.data = (char *)x->data + (size_t)at * pass.size;
        tt__parallel_for(n, TT__CLIP_BLOCK, measure_block, &pass);
        for (int64_t b = 0; b * TT__CLIP_BLOCK < n; b++)
            all = joined(norm_type, all, pass.part[b]);
    }
    return all;
}

void tt__grad_total_join(tt__grad_total *total, double value) {
    if (!isinf(total->p))
        total->value += value;
    else if (value > total->value || value != value) /* no number is above NaN */
        total->value = value;
}

tt_status tt__grad_total_end(tt__grad_total *total) {
    double value = 0;
    if (!total->far)
        return TT_OK;
    tt_status status = tt__capture_refuse(total->who, NULL);
    if (!status)
        status = tt_item(total->far, &value);
    if (!status)
        tt__grad_total_join(total, value);
    total->far = tt__abandon(total->far);
    return status;
}

tt_tensor *tt__grad_total_far(tt__grad_total *total, const tt_tensor *x) {
    if (total->far && tt__device_of(total->far) == tt__device_of(x))
        return total->far;
    if (tt__grad_total_end(total))
        return NULL;
    tt_tensor *far = tt__empty_beside(total->who, x, TT_SCALAR, TT_F64);
    total->far = far && tt__fill_out(total->who, far, 0) ? tt__abandon(far) : far;
    return total->far;
}

tt_status tt__grad_total_measure(tt__grad_total *total, tt_tensor *x) {
    tt_tensor *flat = tt_contiguous(x);
    if (!flat)
        return tt_last_status();
    if (tt__device_is_host(tt__device_of(x))) {
        tt__grad_total_join(total, clip_term(flat, total->p));
        return TT_OK;
    }
    tt__kernel_grad_measure run = TT__KERNEL(total->who, flat, grad_measure);
    tt_tensor *far = run ? tt__grad_total_far(total, flat) : NULL;
    return far ? run(flat, total->p, far) : tt_last_status();
}

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

/* Measure all gradients. *is_f64: one is f64, so PyTorch's norm would be; else it is f32. */
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

/* Clip by the norm. `own`: this rank's status so far; after a failure a rank with slices still takes part in the
 * collective call. */
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
