/* The inside of samplers: making the built-in ones, and getting orders from any. */
#ifndef TT_DATA_SAMPLER_H
#define TT_DATA_SAMPLER_H

#include <tutti/data.h>

#include <stdatomic.h>

struct tt_sampler {
    tt_sampler_class cls; /* `name` is never NULL */
    void *user;
    atomic_int holders; /* the caller, until it frees the sampler, and loaders */
    atomic_bool freed;  /* by the caller */
    int64_t dataset_size;
    int64_t size; /* examples an epoch */
    uint64_t seed;
    int64_t epoch;
    int64_t *indices; /* (size), made when `drawn` */
    bool drawn;
    bool begun; /* a loader has begun an epoch with these indices */
};

/* Make a sampler of a built-in class; `who` begins errors. `user` is destroyed on failure, too. */
tt_sampler *tt__sampler_new(const char *who, const tt_sampler_class *cls, void *user, int64_t dataset_size);

/* Hold the sampler until tt__sampler_release(). Returns it. */
tt_sampler *tt__sampler_hold(tt_sampler *sampler);
void tt__sampler_release(tt_sampler *sampler); /* NULL is allowed */

/* Begin an epoch: order (size) := its indices. */
tt_status tt__sampler_begin(tt_sampler *sampler, int64_t *order);

/* Allocate n indices. NULL: no memory; `who` begins the error. */
int64_t *tt__indices_new(const char *who, int64_t n);

/* Check a data set's size: TT_ERR_INVALID unless 1 <= n and a permutation of n indices fits memory. `who` begins the
 * error. */
tt_status tt__check_dataset_size(const char *who, int64_t n);

#endif
