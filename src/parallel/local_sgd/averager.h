/* Averagers of parameters: the part that all kinds share, and a table for each kind's own. */
#ifndef TT_PARALLEL_LOCAL_SGD_AVERAGER_H
#define TT_PARALLEL_LOCAL_SGD_AVERAGER_H

#include "optim/dict.h"
#include "parallel/carried.h"
#include "reducer/text_agreement.h"

#include <tutti/comm.h>
#include <tutti/local_sgd.h>
#include <tutti/nn.h>

/* ---- flat.c: parameters laid out in buckets ---- */

/* A parameter and its place in a bucket. */
typedef struct tt__flat_entry {
    char *name;
    tt_tensor *param; /* watched */
    tt_dtype dtype;   /* its type when it was added; its shape was the view's */
    tt_tensor *view;  /* its place in the bucket */
    size_t bucket;
    int64_t offset; /* in elements of the bucket */
} tt__flat_entry;

typedef struct tt__flat_bucket {
    tt__carried memory; /* where calls take it: on the host, or on the parameters' device */
    int64_t count;
    tt_dtype dtype;
    tt_work *work; /* while the bucket is reduced */
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

/* Copy elements between tensors of one shape, converting the type, on any device. */
tt_status tt__flat_copy(tt_tensor *to, const tt_tensor *from);

/* Copy a bucket's parameters into it / back. */
tt_status tt__flat_pack(const tt__flat *flat, size_t bucket);
tt_status tt__flat_unpack(const tt__flat *flat, size_t bucket);

/* Set all parameters to rank 0's. `what`: the operation, for errors. */
tt_status tt__flat_take_rank_0(tt__flat *flat, const char *what);

/* A function called before, or after, a bucket is averaged. */
typedef tt_status (*tt__flat_fn)(const tt__flat *flat, size_t bucket, void *user);

/* Average every bucket over `group`, some or all of flat->group: before(), all-reduce, after(). While one is
 * reduced, the next is prepared. After a failure no collective is left unfinished. */
tt_status tt__flat_average(tt__flat *flat, tt_group *group, const char *what, tt__flat_fn before, tt__flat_fn after,
                           void *user);

/* ---- averager.c ---- */

/* A kind of averager. Its struct begins with a tt_model_averager. */
typedef struct tt__averager_class {
    const char *name;  /* of the public constructor: "tt_diloco" */
    const char *doing; /* the operation, for errors of its collectives */
    size_t size;       /* of its struct */
    /* Tensors of state for each parameter, of its shape, e.g. {"momentum_buffer"}: f64 for one of f64, else f32. */
    int slots;
    const char *const *slot_names;
    /* Does the next step average? a->steps counts those before it. */
    bool (*due)(const tt_model_averager *a);
    /* Average over the ranks whose turn it is; `all`: over all ranks. NULL: tt__average_plainly() over a->group. */
    tt_status (*average)(tt_model_averager *a, bool all);
    void (*tell)(const tt_model_averager *a); /* tell the last error to all ranks that may wait; NULL: to a->group */
    void (*end)(tt_model_averager *a);        /* release what the kind added; NULL: nothing */
} tt__averager_class;

/* State for each parameter, laid out as the buckets are. */
typedef struct tt__averager_slot {
    void **data;       /* of each bucket */
    tt_tensor **views; /* of each parameter */
} tt__averager_slot;

struct tt_model_averager {
    const tt__averager_class *cls;
    tt_group *group;
    tt__flat flat;
    int64_t steps;
    tt__averager_slot *slots;
    tt__dict dict;    /* the last state dict */
    tt_status broken; /* why nothing can be averaged any more; or TT_OK */
};

/* What a constructor is given, and what its kind adds. */
typedef struct tt__averager_plan {
    const tt__averager_class *cls;
    tt_model_averager **out;
    tt_group *group;
    const tt_named_tensors *params;
    const char *const *options; /* texts, which all ranks must have alike: "period 4" */
    size_t option_count;
    const tt_dtype *as; /* the type in which parameters are sent; NULL: their own types */
    tt__joint_call call;
} tt__averager_plan;

/* tt__averager_agree: compare options and parameters over the ranks, after checks that concern this rank alone.
 * tt__averager_make: make the averager. A kind checks its options between the two, so that every rank gets the same
 * error for a wrong or different value. */
tt_status tt__averager_agree(tt__averager_plan *plan);
tt_status tt__averager_make(const tt__averager_plan *plan, tt_model_averager **made);

/* The end of a constructor: give `a` to the caller; if `status` is an error, free it. */
tt_status tt__averager_finish(const tt__averager_plan *plan, tt_model_averager *a, tt_status status);

/* Average the parameters themselves over a group. */
tt_status tt__average_plainly(tt_model_averager *a, tt_group *group);

#endif
