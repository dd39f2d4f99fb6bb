/* Parameters side by side in a few large buffers, so that few collectives carry them all. */
#ifndef TT_PARALLEL_LOCAL_SGD_FLAT_H
#define TT_PARALLEL_LOCAL_SGD_FLAT_H

#include "parallel/carried.h"

#include <tutti/comm.h>
#include <tutti/nn.h>

/* A parameter, and its place. */
typedef struct tt__flat_entry {
    char *name;
    tt_tensor *param; /* watched */
    tt_dtype dtype;   /* its type when it was added; its shape then is the view's */
    tt_tensor *view;  /* its place in the bucket */
    size_t bucket;
    int64_t offset; /* in elements of the bucket */
} tt__flat_entry;

typedef struct tt__flat_bucket {
    tt__carried memory; /* where calls take it: on the host, or on the parameters' device */
    int64_t count;
    tt_dtype dtype;
    tt_work *work; /* while it is reduced */
} tt__flat_bucket;

typedef struct tt__flat {
    tt_group *group; /* whose symmetric memory this is */
    size_t count;
    tt__flat_entry *entries;
    size_t bucket_count;
    tt__flat_bucket *buckets;
} tt__flat;

/* Lay out `params`, which are floats (tt__flat_check_list()), on any device. Buckets have the parameters' types;
 * with `as`, all parameters but those of f64 are carried as *as. Collective: all ranks have the same list.
 * tt__flat_free() must follow, also after a failure. */
tt_status tt__flat_make(tt__flat *flat, const char *who, tt_group *group, const tt_named_tensors *params,
                        const tt_dtype *as);

/* Collective as tt_group_free() is; never fails. `alone`: other ranks may be in other calls, so that the symmetric
 * memory is left to the end of the group. */
void tt__flat_free(tt__flat *flat, bool alone);

tt_status tt__flat_check_list(const char *who, const tt_named_tensors *params);

/* Check that each parameter has the type and shape with which it was added. */
tt_status tt__flat_check(const tt__flat *flat, const char *who);

/* Copy elements, converted where types differ: of one shape, on any device. */
tt_status tt__flat_copy(tt_tensor *to, const tt_tensor *from);

/* Copy a bucket's parameters into it / back. */
tt_status tt__flat_pack(const tt__flat *flat, size_t bucket);
tt_status tt__flat_unpack(const tt__flat *flat, size_t bucket);

/* Set all parameters to rank 0's. `what`: what the call is part of, for errors. */
tt_status tt__flat_take_rank_0(tt__flat *flat, const char *what);

/* What is done with a bucket before it is averaged, and after. */
typedef tt_status (*tt__flat_fn)(const tt__flat *flat, size_t bucket, void *user);

/* Average every bucket over `group`, some or all of flat->group: before(), all-reduce, after(). While one travels, the
 * next is prepared. After a failure no collective is under way. */
tt_status tt__flat_average(tt__flat *flat, tt_group *group, const char *what, tt__flat_fn before, tt__flat_fn after,
                           void *user);

#endif
