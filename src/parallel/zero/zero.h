/* A sharded optimizer: slices of a DDP wrapper's parameters, and what the files of this folder do for each other.
 *
 * For each bucket of the wrapper's reducer there is a bucket of parameters with the same layout. Both divide into equal
 * parts of whole cache lines, one a rank. A parameter's slice is its elements in this rank's part.
 *
 * The program makes an ordinary optimizer over the slices. What that needs of other ranks is tt__optim_shards
 * (optim/optimizer.h): before and after a step (zero_step.c), sums over slices, and the state of whole parameters
 * (zero_state.c). */
#ifndef TT_PARALLEL_ZERO_ZERO_H
#define TT_PARALLEL_ZERO_ZERO_H

#include "optim/optimizer.h"
#include "parallel/carried.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/fully_shard/fully_shard.h"

#include <tutti/zero.h>

typedef struct tt__zero_bucket {
    tt__carried values; /* the parameters; in stage 3 nothing */
    void *grads;        /* in stage 2: the gradients of this rank's part, where the parameters lie; else NULL */
    int64_t part;       /* elements of a rank's part */
    tt_dtype dtype;
    tt_work *work; /* of the current gathering of parameters; or NULL */
} tt__zero_bucket;

typedef struct tt__zero_param {
    tt_tensor *whole; /* the module's, watched */
    tt_tensor *slice; /* (n) over the bucket, held; NULL: none yet */
    char *name;
    size_t bucket;
    int64_t offset; /* in the bucket */
    int64_t numel;
    int64_t from, n; /* the elements of the parameter that are in the slice */
    bool moved;      /* the parameter lies in the bucket */
} tt__zero_param;

typedef struct tt__zero {
    tt_group *group;         /* held */
    const tt_device *device; /* of the parameters */
    int rank, world, stage;
    tt__ddp *ddp;    /* stages 1 and 2: the wrapper; NULL: it was freed, or got another group */
    tt__fs *fs;      /* stage 3: the sharded module; NULL: it was freed */
    bool hooked;     /* stage 2: the wrapper's communication hook is ours */
    bool gives_back; /* stage 2: give memory of reduced buckets back to the system */
    tt_optimizer *optimizer;
    tt__zero_bucket *buckets;
    size_t bucket_count;
    tt__zero_param *params;
    size_t count;
    bool gathered;     /* the current state was gathered */
    int gathered_to;   /* to this rank, or TT_ALL_RANKS */
    tt_tensor **whole; /* the gathered state, by entry of this rank's state dict; held, or NULL */
    size_t whole_count;
    tt__dict dict; /* the last state dict */
} tt__zero;

/* zero_layout.c: the sharded optimizer behind `optimizer`. NULL, with TT_ERR_INVALID: it is none. */
tt__zero *tt__zero_of(const char *who, const tt_optimizer *optimizer);
extern const char tt__zero_kind[];

/* zero_layout.c: plan all places, this rank alone; take the memory, collective; move the parameters into buckets and
 * make slices, this rank alone; move them back and release everything. */
tt_status tt__zero_lay_out(tt__zero *z);
tt_status tt__zero_allocate(tt__zero *z);
tt_status tt__zero_make_slices(const tt__zero *z);
void tt__zero_release(tt__zero *z);

/* zero_step.c, stage 3: take a sharded module's slices as parameters; be told when they go; be told no more. */
tt_status tt__zero_lay_out_sharded(tt__zero *z);
tt_status tt__zero_watch_sharded(tt__zero *z);
void tt__zero_unwatch_sharded(tt__zero *z);

/* zero_grads.c: the place of the slice's averages in the wrapper. */
void *tt__zero_averaged(const tt__zero *z, const tt__zero_param *p);

/* Take gradients from the wrapper from now on; no longer. */
tt_status tt__zero_watch(tt__zero *z, tt_module *ddp);
void tt__zero_unwatch(tt__zero *z);

/* zero_step.c */
tt_status tt__zero_begin(void *user, const char *who);
tt_status tt__zero_end(void *user, const char *caller, tt_status own);
tt_status tt__zero_join(void *user, const char *caller, tt_status own, double *values, int64_t n, bool largest);
void tt__zero_abandon(void *user);

/* zero_state.c */
const tt_named_tensors *tt__zero_state_dict(void *user);
tt_status tt__zero_load_state_dict(void *user, const tt_named_tensors *state);
void tt__zero_forget_state(tt__zero *z);

/* Return the parameter whose slice this is; NULL: none. */
const tt__zero_param *tt__zero_param_of(const tt__zero *z, const tt_tensor *slice);

/* Return the parameter whose state, element by element, is called `name` ("state.I.exp_avg"). NULL: it is another entry
 * (an option, a step). */
const tt__zero_param *tt__zero_state_of(const tt__zero *z, const char *name);

#endif
