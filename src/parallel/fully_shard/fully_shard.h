/* The inside of a fully sharded module.
 *
 * A unit's parameters lie in buckets, one for each element type (and for frozen ones), which divide into equal parts of
 * whole cache lines, one a rank. Their whole values and gradients keep one address while the module is wrapped, in
 * a place that several units take in turn. So all tensors over them, also those saved for backward, stay valid. While
 * another unit has the place, their storage says that their elements are away.
 *
 * No two buckets of one type have parts of the same size, so that collectives of different units never match: ranks
 * that run different units get TT_ERR_MISMATCH. */
#ifndef TT_PARALLEL_FULLY_SHARD_FULLY_SHARD_H
#define TT_PARALLEL_FULLY_SHARD_FULLY_SHARD_H

#include "autograd/reach.h"
#include "nn/module.h"
#include "parallel/carried.h"
#include "tensor/core/tensor.h"

#include <tutti/fully_shard.h>
#include <tutti/parallel.h>

typedef struct tt__fs tt__fs;

typedef struct tt__fs_bucket {
    tt_dtype dtype;
    bool trains;
    int64_t count;        /* elements that parameters take */
    int64_t part;         /* elements of a rank's part */
    size_t at;            /* its first byte in its unit's place */
    size_t slices_at;     /* its slice's first byte in this rank's slices */
    void *values, *grads; /* whole; grads NULL: it does not train */
    void *slices;         /* this rank's part of the values */
    tt_work *gathering, *averaging;
} tt__fs_bucket;

typedef struct tt__fs_param {
    tt__fs *owner;
    tt_tensor *whole; /* the module's, watched */
    tt_tensor *slice; /* (n), held */
    char *name;
    size_t unit, bucket;
    int64_t offset, numel; /* in the bucket */
    int64_t from, n;       /* the elements of the parameter that are in the slice */
    bool trains;
    bool attached; /* its gradient lies in the unit's place, and its hook is registered */
    bool moved;    /* its values lie in the unit's place */
    bool touched;  /* it got a gradient on this rank in the current pass */
    bool had;      /* its slice had a gradient before that pass */
} tt__fs_param;

typedef enum tt__fs_values { TT__FS_AWAY, TT__FS_COMING, TT__FS_HERE } tt__fs_values;
typedef enum tt__fs_grads { TT__FS_NONE, TT__FS_COLLECTING, TT__FS_AVERAGING } tt__fs_grads;

typedef struct tt__fs_unit {
    tt__fs *owner;
    char *name;
    tt_module *module;     /* NULL: the last unit, which has the parameters of no other unit */
    int64_t before, after; /* its hooks; 0: none */
    size_t first_bucket, bucket_count;
    size_t bytes;    /* of its buckets */
    int64_t trained; /* how many of its parameters train */
    int64_t ready;   /* how many of these have their gradient in the pass under way */
    size_t place, grad_place;
    tt__fs_values values;
    tt__fs_grads grads;
    int running;                      /* forwards of it that have not ended */
    char *gather_site, *average_site; /* names of its collectives in errors */
} tt__fs_unit;

/* A place for whole units. */
typedef struct tt__fs_place {
    tt__carried memory;
    size_t bytes;
    tt__fs_unit *holds; /* or NULL */
} tt__fs_place;

/* An optimizer that works with the slices. */
typedef struct tt__fs_watcher {
    void (*detached)(void *user); /* called once, before the slices go */
} tt__fs_watcher;

/* Records refer to the wrapper by a handle, as it may be freed before them. */
typedef struct tt__fs_handle {
    _Atomic int refs;
    tt__fs *fs; /* NULL: freed */
} tt__fs_handle;

struct tt__fs {
    tt_module *module;       /* kept by the wrapper */
    tt_group *group;         /* held */
    const tt_device *device; /* of the parameters */
    int rank, world;
    bool keeps; /* keep units whole until the step */
    bool broadcasts;
    tt__fs_unit *units; /* the last is the unit of the rest, perhaps without parameters */
    size_t unit_count;
    tt__fs_bucket *buckets;
    size_t bucket_count;
    tt__fs_param *params; /* in the module's order */
    size_t count;
    tt__fs_place *places, *grad_places;
    size_t place_count, grad_place_count;
    tt__carried slices;
    tt__fs_unit *leaving; /* the unit whose whole gradients are being copied for their calls; or NULL */
    unsigned char *marks; /* (count): 1 for each parameter that any rank has used in the pass */
    tt__fs_handle *handle;
    bool backward;        /* a backward pass is under way */
    tt__fs_unit *current; /* the unit that the pass has come to; or NULL */
    tt_status broken;     /* why it can only be freed; or TT_OK */
    bool gathered;        /* all parameters have memory of their own */
    int gathered_to;
    const tt__fs_watcher *watcher; /* or NULL */
    void *watcher_user;
    tt__pass_watcher passes;
};

#define FS_SITE "tt_fully_shard"

static inline tt__fs_unit *tt__fs_rest(const tt__fs *fs) { return &fs->units[fs->unit_count - 1]; }

/* Is this the parameter's unit? */
static inline bool tt__fs_is_of(const tt__fs_param *p, const tt__fs_unit *u) { return &p->owner->units[p->unit] == u; }

static inline tt__fs_bucket *tt__fs_bucket_of(const tt__fs_param *p) { return &p->owner->buckets[p->bucket]; }

/* The place of unit u's whole values; of its whole gradients. */
static inline tt__carried *tt__fs_values_of(const tt__fs_unit *u) { return &u->owner->places[u->place].memory; }
static inline tt__carried *tt__fs_grads_of(const tt__fs_unit *u) {
    return &u->owner->grad_places[u->grad_place].memory;
}

/* Element i of a bucket's values, gradients or slices, which begin at `data`. */
static inline void *tt__fs_element(void *data, const tt__fs_bucket *b, int64_t i) {
    return (char *)data + i * (int64_t)tt_dtype_size(b->dtype);
}

/* The parameter's place among its bucket's values or gradients. */
static inline void *tt__fs_place_of(void *data, const tt__fs_param *p) {
    return tt__fs_element(data, tt__fs_bucket_of(p), p->offset);
}

/* fs_backward.c: a backward pass has failed (reach.h): break the wrapper if it would have reached it. */
void tt__fs_pass_failed(void *user, const tt__reach *reach);

/* fs_wrap.c: the state of a wrapper; NULL if the module is none. */
tt__fs *tt__fs_of(tt_module *module);

/* fs_layout.c: list parameters and plan their places, this rank alone; take the memory, collective; move the parameters
 * there and make slices; release everything. */
tt_status tt__fs_lay_out(tt__fs *fs);
tt_status tt__fs_allocate(tt__fs *fs);
tt_status tt__fs_make_slices(tt__fs *fs);
void tt__fs_release(tt__fs *fs);

/* fs_layout.c: move a parameter to its place, marked as away. */
tt_status tt__fs_put_in_place(tt__fs_param *p);

/* fs_gather.c: gather a unit's parameters and wait until they are whole; or only begin, unless another unit needs the
 * place. */
tt_status tt__fs_need(tt__fs_unit *unit);
tt_status tt__fs_begin(tt__fs_unit *unit);

/* Gather the rest, and begin with the first unit: what a forward of the wrapper needs. */
tt_status tt__fs_begin_first(tt__fs *fs);

/* Begin to gather the unit before (step -1) or behind (1) this one, if there is one. */
tt_status tt__fs_begin_next(const tt__fs_unit *unit, int step);

/* Wait for all gatherings that were begun, so that slices may be written. */
tt_status tt__fs_settle(tt__fs *fs);

/* Slices were written: mark all whole values, which are old now, as away. */
tt_status tt__fs_changed(tt__fs *fs);

/* Advance the collectives that are under way, without waiting. */
void tt__fs_poke(const tt__fs *fs);

/* Abort the group with the last error, which is `status`. From then on the wrapper can only be freed. */
tt_status tt__fs_break(tt__fs *fs, tt_status status);

/* fs_backward.c: return y with an operator behind it that gathers the unit in backward, before the pass reaches what
 * made y. */
tt_tensor *tt__fs_mark_output(const tt__fs_unit *unit, tt_tensor *y);

/* The hook of each parameter that trains, with its tt__fs_param. */
tt_status tt__fs_on_gradient(tt_tensor *x, void *user);

void tt__fs_handle_unref(tt__fs_handle *handle);

#endif
