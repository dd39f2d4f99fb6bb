/* The inside of samplers: making the built-in ones, and getting orders from any. */
#ifndef TT_DATA_SAMPLER_H
#define TT_DATA_SAMPLER_H

#include <tutti/data.h>

#include <stdatomic.h>

struct tt_sampler {
    tt_sampler_class cls; /* `name` is never NULL */
    void *user;
    atomic_int holders; /* the caller (until it frees the sampler), and loaders */
    atomic_bool freed;  /* by the caller */
    int64_t dataset_size;
    int64_t size; /* examples an epoch */
    int64_t now;  /* examples of the epoch that was drawn last: fewer if it was resumed */
    uint64_t seed;
    int64_t epoch;
    bool epoch_said;  /* by tt_sampler_set_epoch() */
    int64_t *indices; /* (size), made when `drawn` */
    bool drawn;
    bool begun;              /* a loader has begun an epoch with these indices */
    bool pure;               /* the order depends on the epoch alone */
    tt_generator *generator; /* the sampler's own, borrowed; or NULL */

    /* Of an order that ranks share. */
    int64_t replicas;      /* ranks, or virtual ranks, that share it; 0: they don't */
    int64_t visited;       /* examples of it that had been visited when this epoch was resumed */
    int64_t virtual_ranks; /* 0: none */
    int64_t shards;        /* the shares of virtual ranks that the indices have, one after the other */
    bool exact;            /* shares may differ in size by one */
    int64_t (*rest)(void *user, int64_t visited); /* set `visited`; returns how many of the rest are this rank's */
    void (*share)(void *user, int64_t replicas, int64_t rank); /* divide by `replicas` from now on, as `rank` */

    /* Of a batch sampler: either the sampler whose order it cuts, or its own batches. */
    tt_sampler *cuts;   /* held until `user` is destroyed; NULL: none */
    int64_t batch_size; /* of the batches that are cut */
    bool drop_last;
    /* (batches) sizes in the epoch of `indices`, 0 behind the last one; owned by `user`; or NULL */
    int64_t *sizes;
    int64_t batches, largest; /* the most batches of an epoch, and the most examples of one */
};

static inline bool tt__is_batch_sampler(const tt_sampler *s) { return s->cuts || s->sizes; }

/* Make a sampler of a built-in class; `who` begins errors. `user` is destroyed on failure, too. */
tt_sampler *tt__sampler_new(const char *who, const tt_sampler_class *cls, void *user, int64_t dataset_size);

/* Hold the sampler until tt__sampler_release(). Returns it. */
tt_sampler *tt__sampler_hold(tt_sampler *sampler);
void tt__sampler_release(tt_sampler *sampler); /* NULL is allowed */

/* Begin an epoch: order (size) := its indices, sampler->now of them. */
tt_status tt__sampler_begin(tt_sampler *sampler, int64_t *order);

/* Begin the rest of an epoch, of which the ranks together have visited `visited` examples: needs `rest`. */
tt_status tt__sampler_resume(tt_sampler *sampler, int64_t visited, int64_t *order);

/* Begin an epoch with a given order of valid indices: sampler->size of them, or as many as `sizes` (NULL: none) add up
 * to. */
void tt__sampler_put(tt_sampler *sampler, const int64_t *order, const int64_t *sizes);

/* Return the most indices of a share, if `replicas` ranks share the order. */
int64_t tt__sampler_room(const tt_sampler *sampler, int64_t replicas);

/* Have the order shared by `replicas` ranks from now on, of which this is number `rank`: needs `share`. The epoch under
 * way is forgotten. After a failure nothing has changed. */
tt_status tt__sampler_share(tt_sampler *sampler, int64_t replicas, int64_t rank);

/* Check sizes (sampler->batches) of batches: *examples := their sum, at most sampler->size. */
tt_status tt__check_batch_sizes(const char *who, const tt_sampler *sampler, const int64_t *sizes, int64_t *examples);

/* Allocate n indices. NULL: no memory; `who` begins the error. */
int64_t *tt__indices_new(const char *who, int64_t n);

/* Check a data set's size: TT_ERR_INVALID unless 1 <= n and a permutation of n indices fits memory. `who` begins the
 * error. */
tt_status tt__check_dataset_size(const char *who, int64_t n);

#endif
