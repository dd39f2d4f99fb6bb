/* How often values fall between PyTorch's limits: 0 and +-1e-12 * 1.1^k up to 1e20. */
#ifndef TT_METRICS_HISTOGRAM_H
#define TT_METRICS_HISTOGRAM_H

#include <tutti/base.h>

enum { TT__HISTOGRAM_EDGES = 1549 }; /* 774 on each side, and 0 */

typedef struct tt__histogram {
    double min, max, num, sum, sum_squares;
    size_t size;                       /* buckets; those before the first value and behind the last are left out, but
                                         for one before */
    double limit[TT__HISTOGRAM_EDGES]; /* of bucket i: its values are below limit[i], and not below limit[i - 1] */
    double count[TT__HISTOGRAM_EDGES];
} tt__histogram;

/* Count f32 or f64 values. TT_ERR_NAN: one that is NaN or infinite, with its number. */
tt_status tt__histogram_fill(tt__histogram *h, const char *who, const void *values, int64_t count, tt_dtype dtype);

#endif
