/* Numbers at equal distances, and the unit matrix. */
#include "base/error.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>

/* Make first, first + step, ..., each computed in double and rounded once; where there is a `last` one the second half
 * is counted back from it, so that both ends are exact. */
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
