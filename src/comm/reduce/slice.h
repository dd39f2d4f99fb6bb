/* Shares of a buffer: whole cache lines, the same number for each of n; the last ones may be empty. */
#ifndef TT_COMM_REDUCE_SLICE_H
#define TT_COMM_REDUCE_SLICE_H

#include "base/machine/cpu.h"

#include <stdbool.h>
#include <stddef.h>

/* Elements at..at+n-1. */
typedef struct tt__slice {
    size_t at, n;
} tt__slice;

/* Return share i of n of `count` elements of `size` bytes, a power of two up to 64. */
static inline tt__slice tt__slice_of(size_t count, size_t size, int n, int i) {
    size_t shares = (size_t)n, line = (size_t)TT__CACHE_LINE >> __builtin_ctzl(size);
    bool is_power = !(shares & (shares - 1)); /* divisions cost as much as the rest of a small call */
    size_t part = is_power ? (count + shares - 1) >> __builtin_ctzl(shares) : (count + shares - 1) / shares;
    size_t share = (part + line - 1) & ~(line - 1), at = share * (size_t)i;
    if (at >= count)
        return (tt__slice){count, 0};
    return (tt__slice){at, count - at < share ? count - at : share};
}

#endif
