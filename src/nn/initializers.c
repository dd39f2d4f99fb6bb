/* Initializers of parameters: constant, drawn, by fans, orthogonal. */
#include "base/args.h"
#include "base/error.h"
#include "tensor/ops/ops.h"
#include "tensor/random/random.h"

#include <tutti/init.h>

#include <math.h>

/* May x be filled: floats, of these numbers of dimensions? */
static tt_status init_check(const char *who, const tt_tensor *x, int least_dims, int most_dims) {
    if (!x)
        return tt__tensor_first_error(who);
    if (!tt__tensor_check(who, x))
        return tt_last_status();
    if (!tt__is_float(x->dtype))
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected a tensor of floats, got %s", who, TT__DESCRIBE(x));
    else if (x->shape.ndim < least_dims)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected at least %d dimensions, got %s", who, least_dims, TT__DESCRIBE(x));
    else if (x->shape.ndim > most_dims)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected at most %d dimensions, got %s", who, most_dims, TT__DESCRIBE(x));
    else
        return tt__tensor_check_writable(who, x);
    return tt_last_status();
}

/* The same for what is drawn, which must be f32 or f64. */
static tt_status init_draw_check(const char *who, const tt_tensor *x, int least_dims) {
    TT__TRY(init_check(who, x, least_dims, TT_MAX_DIMS));
    if (x->dtype == TT_F32 || x->dtype == TT_F64)
        return TT_OK;
    tt__tensor_fail(TT_ERR_DTYPE, "%s: expected f32 or f64, got %s; tt_to() converts", who, TT__DESCRIBE(x));
    return TT_ERR_DTYPE;
}

/* ---- by values ---- */

static tt_status init_fill(const char *who, tt_tensor *x, double value) {
    TT__TRY(init_check(who, x, 0, TT_MAX_DIMS));
    tt__storage_touch(x->storage);
    return tt__fill_out(who, x, value);
}

tt_status tt_init_constant_(tt_tensor *x, double value) { return init_fill("tt_init_constant_", x, value); }

tt_status tt_init_zeros_(tt_tensor *x) { return init_fill("tt_init_zeros_", x, 0); }

tt_status tt_init_ones_(tt_tensor *x) { return init_fill("tt_init_ones_", x, 1); }

/* Fill the first n elements of the diagonal of x (R,C) with ones. */
static tt_status fill_diagonal(const char *who, const tt_tensor *x, int64_t n) {
    tt_tensor diagonal = tt__tensor_seen(x, TT_SHAPE(n), (const int64_t[]){x->stride[0] + x->stride[1]});
    return n ? tt__fill_out(who, &diagonal, 1) : TT_OK;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

tt_status tt_init_eye_(tt_tensor *x) {
    static const char who[] = "tt_init_eye_";
    TT__TRY(init_check(who, x, 2, 2));
    TT__TRY(init_fill(who, x, 0));
    return fill_diagonal(who, x, least(x->shape.dim[0], x->shape.dim[1]));
}

/* x (K,C,...): fill the ones of group g, K/groups outputs. */
static tt_status dirac_group(const char *who, const tt_tensor *x, int64_t g, int64_t groups) {
    int64_t outputs = x->shape.dim[0] / groups;
    tt_tensor *at = tt__slice(who, x, 0, g * outputs, (g + 1) * outputs, 1);
    for (int d = x->shape.ndim - 1; d >= 2 && at; d--) {
        tt_tensor *middle = tt__select(who, at, d, x->shape.dim[d] / 2);
        tt__abandon(at);
        at = middle;
    }
    tt_status status = at ? fill_diagonal(who, at, least(outputs, x->shape.dim[1])) : tt_last_status();
    tt__abandon(at);
    return status;
}

tt_status tt_init_dirac_with(const tt_init_dirac_args *args, size_t size) {
    static const char who[] = "tt_init_dirac_";
    tt_init_dirac_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_check(who, a.x, 3, 5));
    int64_t groups = a.groups ? a.groups : 1;
    if (groups < 1 || a.x->shape.dim[0] % groups)
        return tt__fail(TT_ERR_INVALID, "%s: expected groups that divide %lld, got %lld", who,
                        (long long)a.x->shape.dim[0], (long long)groups);
    TT__TRY(init_fill(who, a.x, 0));
    for (int64_t g = 0; g < groups && a.x->numel; g++)
        TT__TRY(dirac_group(who, a.x, g, groups));
    return TT_OK;
}

/* ---- drawn ---- */

tt_status tt_init_uniform_with(const tt_init_uniform_args *args, size_t size) {
    tt_init_uniform_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_draw_check("tt_init_uniform_", a.x, 0));
    return tt_uniform_(a.x, a.a, a.b, a.generator);
}

tt_status tt_init_normal_with(const tt_init_normal_args *args, size_t size) {
    tt_init_normal_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_draw_check("tt_init_normal_", a.x, 0));
    return tt_normal_(a.x, a.mean, a.std, a.generator);
}

tt_status tt_init_trunc_normal_with(const tt_init_trunc_normal_args *args, size_t size) {
    static const char who[] = "tt_init_trunc_normal_";
    tt_init_trunc_normal_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_draw_check(who, a.x, 0));
    tt__truncation cut = {a.mean, a.std, a.a, a.b};
    if (a.a == 0 && a.b == 0)
        cut.low = -2, cut.high = 2;
    if (!(a.std > 0) || !(cut.low < cut.high) || !isfinite(a.mean) || !isfinite(a.std))
        return tt__fail(TT_ERR_INVALID, "%s: expected std above 0 and a < b, got std %g, mean %g, bounds %g and %g",
                        who, a.std, a.mean, cut.low, cut.high);
    return tt__trunc_normal_(who, a.x, &cut, a.generator);
}

/* ---- by fans ---- */

double tt_init_calculate_gain(tt_nonlinearity nonlinearity, double negative_slope) {
    switch (nonlinearity) {
    case TT_NONLINEARITY_LEAKY_RELU:
        return sqrt(2 / (1 + negative_slope * negative_slope));
    case TT_NONLINEARITY_RELU:
        return sqrt(2);
    case TT_NONLINEARITY_TANH:
        return 5.0 / 3;
    case TT_NONLINEARITY_SELU:
        return 3.0 / 4;
    case TT_NONLINEARITY_SIGMOID:
    case TT_NONLINEARITY_LINEAR:
        return 1;
    }
    (void)tt__fail(TT_ERR_INVALID, "tt_init_calculate_gain: expected a tt_nonlinearity, got %d", (int)nonlinearity);
    return NAN;
}

/* The fans of x (K,C,...): {in, out}. Its sizes are those of elements in memory, so that double holds the products. */
static void init_fans(const tt_tensor *x, double fan[2]) {
    fan[0] = (double)x->shape.dim[1];
    fan[1] = (double)x->shape.dim[0];
    for (int d = 2; d < x->shape.ndim; d++) {
        fan[0] *= (double)x->shape.dim[d];
        fan[1] *= (double)x->shape.dim[d];
    }
}

static tt_status init_uniform_std(tt_tensor *x, double std, tt_generator *generator) {
    double bound = sqrt(3) * std;
    return tt_uniform_(x, -bound, bound, generator);
}

static tt_status init_normal_std(tt_tensor *x, double std, tt_generator *generator) {
    return tt_normal_(x, 0, std, generator);
}

static tt_status gain_check(const char *who, double gain) {
    if (isfinite(gain) && gain >= 0)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected a gain of at least 0, got %g", who, gain);
}

static tt_status xavier(const char *who, const tt_init_xavier_uniform_args *args, size_t size,
                        tt_status (*draw)(tt_tensor *x, double std, tt_generator *generator)) {
    double fan[2];
    tt_init_xavier_uniform_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_draw_check(who, a.x, 2));
    TT__TRY(gain_check(who, a.gain));
    init_fans(a.x, fan);
    double gain = a.gain == 0 ? 1 : a.gain;
    return a.x->numel ? draw(a.x, gain * sqrt(2 / (fan[0] + fan[1])), a.generator) : TT_OK;
}

tt_status tt_init_xavier_uniform_with(const tt_init_xavier_uniform_args *args, size_t size) {
    return xavier("tt_init_xavier_uniform_", args, size, init_uniform_std);
}

tt_status tt_init_xavier_normal_with(const tt_init_xavier_uniform_args *args, size_t size) {
    return xavier("tt_init_xavier_normal_", args, size, init_normal_std);
}

static tt_status kaiming(const char *who, const tt_init_kaiming_uniform_args *args, size_t size,
                         tt_status (*draw)(tt_tensor *x, double std, tt_generator *generator)) {
    double fan[2];
    tt_init_kaiming_uniform_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_draw_check(who, a.x, 2));
    if ((unsigned)a.mode > TT_FAN_OUT || (unsigned)a.nonlinearity > TT_NONLINEARITY_SELU)
        return tt__fail(TT_ERR_INVALID, "%s: expected a tt_fan_mode and a tt_nonlinearity, got %d and %d", who,
                        (int)a.mode, (int)a.nonlinearity);
    double gain = tt_init_calculate_gain(a.nonlinearity, a.a);
    TT__TRY(gain_check(who, gain));
    init_fans(a.x, fan);
    return a.x->numel ? draw(a.x, gain / sqrt(fan[a.mode]), a.generator) : TT_OK;
}

tt_status tt_init_kaiming_uniform_with(const tt_init_kaiming_uniform_args *args, size_t size) {
    return kaiming("tt_init_kaiming_uniform_", args, size, init_uniform_std);
}

tt_status tt_init_kaiming_normal_with(const tt_init_kaiming_uniform_args *args, size_t size) {
    return kaiming("tt_init_kaiming_normal_", args, size, init_normal_std);
}

/* ---- orthogonal ---- */

tt_status tt_init_orthogonal_with(const tt_init_orthogonal_args *args, size_t size) {
    static const char who[] = "tt_init_orthogonal_";
    tt_init_orthogonal_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(init_draw_check(who, a.x, 2));
    TT__TRY(gain_check(who, a.gain));
    if (!a.x->numel)
        return TT_OK;
    tt__storage_touch(a.x->storage);
    return tt__orthogonal_(who, a.x, a.gain == 0 ? 1 : a.gain, a.generator);
}
