/* New tensors: filled with one value, copied from an array, steps of equal size, the unit matrix. */
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

tt_tensor *tt_empty(tt_shape shape, tt_dtype dtype) { return tt__tensor_new("tt_empty", shape, dtype); }

tt_tensor *tt_empty_like(const tt_tensor *x) {
    return x && tt__tensor_check("tt_empty_like", x) ? tt__empty_like("tt_empty_like", x) : NULL;
}

tt_status tt__fill_out(const char *who, tt_tensor *y, double value) {
    tt__kernel_fill run = TT__KERNEL(who, y, fill);
    return run ? run(y, value) : tt_last_status();
}

/* Can the element type hold the value? Converting a double outside of an integer's range is undefined in C. */
static bool type_holds(tt_dtype dtype, double value) {
    static const struct {
        double above, below;
    } range[TT__DTYPES] = {[TT_U8] = {-1, 256},
                           [TT_I8] = {-129, 128},
                           [TT_I16] = {-32769, 32768},
                           [TT_I32] = {-2147483649.0, 2147483648.0},
                           [TT_I64] = {-9223372036854777856.0, 9223372036854775808.0}};
    if ((unsigned)dtype >= TT__DTYPES || range[dtype].below == 0)
        return true;
    return value > range[dtype].above && value < range[dtype].below;
}

bool tt__dtype_holds(tt_dtype dtype, double value) {
    return type_holds(dtype, value) && (tt__is_float(dtype) || value == floor(value));
}

static tt_tensor *make_full(const char *who, tt_shape shape, tt_dtype dtype, double value) {
    if (!type_holds(dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, value, tt_dtype_name(dtype));
    tt_tensor *x = tt__tensor_new(who, shape, dtype);
    return x && tt__fill_out(who, x, value) ? tt__abandon(x) : x;
}

tt_tensor *tt_zeros(tt_shape shape, tt_dtype dtype) { return make_full("tt_zeros", shape, dtype, 0); }

tt_tensor *tt_ones(tt_shape shape, tt_dtype dtype) { return make_full("tt_ones", shape, dtype, 1); }

tt_tensor *tt_full(tt_shape shape, tt_dtype dtype, double value) { return make_full("tt_full", shape, dtype, value); }

static tt_tensor *make_like(const char *who, const tt_tensor *x, double value) {
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    if (!type_holds(x->dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, value, tt_dtype_name(x->dtype));
    tt_tensor *y = tt__empty_like(who, x);
    return y && tt__fill_out(who, y, value) ? tt__abandon(y) : y;
}

tt_tensor *tt_zeros_like(const tt_tensor *x) { return make_like("tt_zeros_like", x, 0); }

tt_tensor *tt_ones_like(const tt_tensor *x) { return make_like("tt_ones_like", x, 1); }

tt_tensor *tt_full_like(const tt_tensor *x, double value) { return make_like("tt_full_like", x, value); }

tt_tensor *tt_arange(int64_t n) {
    tt_tensor *x = tt__tensor_new("tt_arange", TT_SHAPE(n), TT_I64);
    int64_t *p = x ? x->data : NULL;
    for (int64_t i = 0; p && i < n; i++)
        p[i] = i;
    return x;
}

tt_tensor *(tt_from_data)(const void *data, tt_shape shape, tt_dtype dtype) {
    if (!data && tt__shape_numel(&shape) > 0)
        return tt__tensor_fail(TT_ERR_INVALID, "tt_from_data: data is NULL");
    tt_tensor *x = tt__tensor_new("tt_from_data", shape, dtype);
    if (x && x->numel)
        memcpy(x->data, data, (size_t)x->numel * tt_dtype_size(dtype));
    return x;
}

/* ---- numbers at equal distances, and the unit matrix */

/* Make first, first + step, ..., each computed in double and rounded once. With `last` the second half is counted back
 * from it, which makes both ends exact. */
static tt_tensor *make_steps(const char *who, int64_t n, double first, double step, const double *last,
                             tt_dtype dtype) {
    tt_tensor *exact = tt__tensor_new(who, TT_SHAPE(n), TT_F64);
    double *p = exact ? exact->data : NULL;
    for (int64_t i = 0; p && i < n; i++)
        p[i] = last && i > 0 && i >= n / 2 ? *last - step * (double)(n - 1 - i) : first + step * (double)i;
    tt_tensor *x = !exact || dtype == TT_F64 ? exact : tt__to(who, exact, dtype);
    tt__contiguous_done(exact, x);
    return x;
}

static bool is_whole_number(double value) { return value == floor(value) && fabs(value) <= 0x1p53; }

tt_tensor *tt_arange_from(double start, double end, double step, tt_dtype dtype) {
    static const char who[] = "tt_arange_from";
    double n = ceil((end - start) / step);
    if (!(step != 0) || !(n >= 0) || n > 0x1p53)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected numbers and a step from start towards end, got %g, %g, %g",
                               who, start, end, step);
    if (!tt__is_float(dtype) && !(is_whole_number(start) && is_whole_number(step)))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected whole numbers up to 2^53 for %s, got %g by steps of %g",
                               who, tt_dtype_name(dtype), start, step);
    return make_steps(who, (int64_t)n, start, step, NULL, dtype);
}

tt_tensor *tt_linspace(double start, double end, int64_t steps, tt_dtype dtype) {
    double step = steps > 1 ? (end - start) / (double)(steps - 1) : 0;
    return make_steps("tt_linspace", steps, start, step, &end, dtype);
}

tt_tensor *tt_eye(int64_t n, int64_t m, tt_dtype dtype) {
    static const char who[] = "tt_eye";
    tt_tensor *x = tt__tensor_new(who, TT_SHAPE(n, m), dtype);
    if (!x)
        return NULL;
    tt_tensor diagonal = tt__tensor_seen(x, TT_SHAPE(n < m ? n : m), (const int64_t[]){m + 1});
    return tt__fill_out(who, x, 0) || tt__fill_out(who, &diagonal, 1) ? tt__abandon(x) : x;
}
