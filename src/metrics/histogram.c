#include "metrics/histogram.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* All limits, ascending; their number. Multiplied up as PyTorch does, so that they have the same bits. */
static size_t make_limits(double *limit) {
    size_t half = 0;
    for (double v = 1e-12; v < 1e20; v *= 1.1)
        half++;
    limit[half] = 0;
    double v = 1e-12;
    for (size_t i = 1; i <= half; i++, v *= 1.1) {
        limit[half + i] = v;
        limit[half - i] = -v;
    }
    return 2 * half + 1;
}

/* The last limit that isn't above x; -1: all are. */
static ptrdiff_t limit_below(const double *limit, size_t limits, double x) {
    size_t below = 0, above = limits;
    while (below < above) {
        size_t middle = (below + above) / 2;
        if (limit[middle] <= x)
            below = middle + 1;
        else
            above = middle;
    }
    return (ptrdiff_t)below - 1;
}

static double value_at(const void *values, int64_t i, tt_dtype dtype) {
    return dtype == TT_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static void count_value(tt__histogram *h, size_t limits, double x) {
    ptrdiff_t at = limit_below(h->limit, limits, x);
    at -= at == (ptrdiff_t)limits - 1 && x == h->limit[limits - 1]; /* the last bucket has its end */
    if (at >= 0 && at < (ptrdiff_t)limits - 1)
        h->count[at]++;
    h->min = h->num == 0 || x < h->min ? x : h->min;
    h->max = h->num == 0 || x > h->max ? x : h->max;
    h->num++;
    h->sum += x;
    h->sum_squares += x * x;
}

/* count[i] is of the values from limit[i] on: leave it to its upper limit, without empty buckets outside. */
static void cut_histogram(tt__histogram *h, size_t limits) {
    size_t first = 0, last = limits - 2;
    while (first < last && h->count[first] == 0)
        first++;
    while (last > first && h->count[last] == 0)
        last--;
    h->size = last - first + 2;
    memmove(h->limit, h->limit + first, h->size * sizeof *h->limit);
    memmove(h->count + 1, h->count + first, (h->size - 1) * sizeof *h->count);
    h->count[0] = 0;
}

tt_status tt__histogram_fill(tt__histogram *h, const char *who, const void *values, int64_t count, tt_dtype dtype) {
    *h = (tt__histogram){.num = 0};
    size_t limits = make_limits(h->limit);
    for (int64_t i = 0; i < count; i++) {
        double x = value_at(values, i, dtype);
        if (!isfinite(x))
            return tt__fail(TT_ERR_NAN, "%s: expected finite values, got %g as number %" PRId64, who, x, i);
        count_value(h, limits, x);
    }
    cut_histogram(h, limits);
    return TT_OK;
}
