#include "reducer/bucket.h"

#include "base/error.h"

enum { DTYPES = TT_BOOL + 1 };

/* The open bucket of one dtype. */
typedef struct open_bucket {
    size_t first; /* its first item; SIZE_MAX = none is open */
    size_t bytes;
    size_t limit; /* index */
} open_bucket;

/* Number the items of the bucket, which all lie in first..last. Items in no bucket have SIZE_MAX. */
static void close_bucket(const tt__bucket_item *items, open_bucket *open, size_t last, size_t number,
                         size_t *bucket_of) {
    for (size_t i = open->first; i <= last; i++)
        if (items[i].dtype == items[last].dtype && bucket_of[i] == SIZE_MAX)
            bucket_of[i] = number;
    open->first = SIZE_MAX;
    open->bytes = 0;
}

static open_bucket *oldest_bucket(open_bucket *open) {
    open_bucket *found = &open[0];
    for (int d = 1; d < DTYPES; d++)
        if (open[d].first < found->first)
            found = &open[d];
    return found->first == SIZE_MAX ? NULL : found;
}

size_t tt__bucket_assign(const tt__bucket_item *items, size_t count, const size_t *limits, size_t limit_count,
                         size_t *bucket_of) {
    open_bucket open[DTYPES];
    size_t buckets = 0, last_of[DTYPES];
    for (int d = 0; d < DTYPES; d++)
        open[d] = (open_bucket){.first = SIZE_MAX};
    for (size_t i = 0; i < count; i++) {
        open_bucket *b = &open[items[i].dtype];
        bucket_of[i] = SIZE_MAX;
        last_of[items[i].dtype] = i;
        if (b->first == SIZE_MAX)
            b->first = i;
        b->bytes += items[i].bytes;
        if (b->bytes < limits[b->limit])
            continue;
        close_bucket(items, b, i, buckets++, bucket_of);
        if (b->limit + 1 < limit_count)
            b->limit++;
    }
    for (open_bucket *b; (b = oldest_bucket(open));)
        close_bucket(items, b, last_of[b - open], buckets++, bucket_of);
    return buckets;
}
