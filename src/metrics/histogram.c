#include "metrics/histogram.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { EDGES = TT__HISTOGRAM_EDGES, HALF = EDGES / 2 };

/* All limits, ascending. Multiplied up as PyTorch does, so that they have the same bits. */
static void make_limits(double *limit) {
    double v = 1e-12;
    limit[HALF] = 0;
    for (int i = 1; i <= HALF; i++, v *= 1.1) {
        limit[HALF + i] = v;
        limit[HALF - i] = -v;
    }
}

/* The last limit that isn't above x; -1: all are. */
static int limit_below(const double *limit, double x) {
    int below = 0, above = EDGES;
    while (below < above) {
        int middle = (below + above) / 2;
        if (limit[middle] <= x)
            below = middle + 1;
        else
            above = middle;
    }
    return below - 1;
}

static double value_at(const void *values, int64_t i, tt_dtype dtype) {
    return dtype == TT_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static void count_value(tt__histogram *h, double x) {
    int at = limit_below(h->limit, x);
    at -= at == EDGES - 1 && x == h->limit[EDGES - 1]; /* the last bucket has its end */
    if (at >= 0 && at < EDGES - 1)
        h->count[at]++;
    h->min = h->num == 0 || x < h->min ? x : h->min;
    h->max = h->num == 0 || x > h->max ? x : h->max;
    h->num++;
    h->sum += x;
    h->sum_squares += x * x;
}

/* count[i] is of the values from limit[i] on: leave it to its upper limit, without empty buckets outside. */
static void cut_histogram(tt__histogram *h) {
    size_t first = 0, last = EDGES - 2;
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
    make_limits(h->limit);
    for (int64_t i = 0; i < count; i++) {
        double x = value_at(values, i, dtype);
        if (!isfinite(x))
            return tt__fail(TT_ERR_NAN, "%s: expected finite values, got %g as number %" PRId64, who, x, i);
        count_value(h, x);
    }
    cut_histogram(h);
    return TT_OK;
}
