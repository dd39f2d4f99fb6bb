/* Which gradients are reduced together. */
#ifndef TT_REDUCER_BUCKET_H
#define TT_REDUCER_BUCKET_H

#include "base/export.h"

#include <tutti/base.h>

/* What assigning needs to know of a gradient. */
typedef struct tt__bucket_item {
    size_t bytes;
    tt_dtype dtype;
} tt__bucket_item;

/* Assign gradients to buckets, by PyTorch DDP's procedure. Per dtype there is one open bucket. Each item, in the order
 * given, is appended to the open bucket of its dtype; if the bucket's bytes are then at or above its limit it is
 * closed, and that dtype moves to its next limit (the last one repeats). So a bucket may exceed its limit by its last
 * item. At the end open buckets are closed, those opened first first. bucket_of[i] := item i's bucket, numbered in the
 * order of closing. Returns the number of buckets. `limits`: at least one. */
TT__EXPORT size_t tt__bucket_assign(const tt__bucket_item *items, size_t count, const size_t *limits,
                                    size_t limit_count, size_t *bucket_of);

#endif
