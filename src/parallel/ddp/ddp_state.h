/* What a DDP wrapper is made of, and what its files do for each other:
 *
 *   ddp.c          a wrapper's life, its forward, its public calls, its communication hook
 *   ddp_bind.c     binds the wrapper to a group: compares the ranks' modules, takes values, makes the reducer
 *   ddp_names.c    parameters that the program names, to be left out or averaged last; values taken from one rank
 *   ddp_pass.c     the backward pass: marks each gradient ready; its end waits for the averages, and closes the step
 *   ddp_step.c     an optimizer that steps inside the pass
 *   ddp_shards.c   virtual ranks
 *   ddp_sparse.c   sparse gradients
 *   ddp_device.c   gradients on a device: copied from there, or averaged there */
#ifndef TT_PARALLEL_DDP_STATE_H
#define TT_PARALLEL_DDP_STATE_H

#include "autograd/reach.h"
#include "reducer/reducer.h"

#include <tutti/nn.h>
#include <tutti/parallel.h>

typedef struct tt__ddp tt__ddp;
typedef struct tt__ddp_shards tt__ddp_shards;
typedef struct tt__ddp_twins tt__ddp_twins;

/* An optimizer, or another object that works with a wrapper's gradients. */
typedef struct tt__ddp_watcher {
    void (*stepped)(void *user);  /* a pass has averaged the gradients */
    void (*detached)(void *user); /* gradients are about to go: the wrapper is freed or leaves its group. Called once */
    bool takes_all;               /* the watcher takes averages out of the buckets: parameters get none */
} tt__ddp_watcher;

/* An optimizer that steps inside the backward pass: ddp_step.c. */
typedef struct tt__ddp_stepper {
    bool zero_grad;
    tt_status (*pass_ended)(const tt__ddp *d); /* all is averaged: step parameters that lie in no bucket */
    void (*end)(tt__ddp *d);                   /* leave the optimizer to the program again, and free the stepper */
} tt__ddp_stepper;

/* One parameter that requires a gradient. */
typedef struct tt__ddp_slot {
    tt__ddp *owner;
    size_t index;         /* in the reducer */
    tt_tensor *parameter; /* a reference, so that module and wrapper may be freed in any order */
    bool ready;           /* the reducer knows whether it takes part in the current step */
    bool touched;         /* a pass since the last step gave it a gradient, even if that pass averaged nothing */
    bool absent;          /* it has no gradient on this rank in the current step */
    bool delayed;         /* it is averaged when the pass has ended (.delay_all_reduce) */
    bool sparse;          /* its gradients are rows, and lie in no bucket: ddp_sparse.c */
    bool gives;           /* sparse: this rank's rows take part in the average of the current step */
} tt__ddp_slot;

/* Which ranks take part in steps, where they have different numbers of them: uneven_join.c. */
typedef struct tt__ddp_presence {
    tt__ddp *ddp;           /* NULL: the wrapper was freed */
    bool divide_by_present; /* average over the ranks that gave gradients */
    int64_t nominal;        /* not 0: weight gradients by examples, so many of which count as one share */
    bool ends_early;        /* fail when a rank has no more data */
    int64_t examples;       /* of this rank's next step */
    int64_t steps;          /* that have ended since the last wait */
    int root;               /* the lowest rank that gave gradients in the last step; 0 before */
    int present;            /* how many ranks gave gradients in the last step */
} tt__ddp_presence;

/* The communication hook. It stays with the wrapper when that changes its group. */
typedef struct tt__ddp_hook {
    const tt_comm_hook *table; /* NULL: none */
    void *state;
    void (*destroy)(void *state); /* NULL: `state` is borrowed */
    char *settings;               /* or NULL */
} tt__ddp_hook;

/* Gradients on a device: ddp_device.c. */
typedef struct tt__ddp_device {
    tt__ddp_twins *twins;           /* of the buckets; NULL: gradients lie in the buckets */
    struct tt__device_peers *peers; /* ranks that add up each other's twins; NULL: buckets are averaged on the host */
    tt__reducer_place place;        /* of the buckets, if the group's back end takes the device's memory */
    const tt_device *place_device;
} tt__ddp_device;

typedef struct tt__ddp_times {
    tt_ddp_logging_data log;
    int64_t mean_ns[4]; /* of the log's times */
    int64_t forward_ns; /* of forwards since the last step */
    int64_t first_ns;   /* when the first gradient of the pass that averages came */
} tt__ddp_times;

struct tt__ddp {
    tt_module *module; /* kept by the wrapper, as `wrapped` of its class */
    tt_group *group;   /* NULL: bound to none */
    tt_reducer *reducer;
    tt__ddp_slot *slots;
    size_t attached; /* slots whose gradient lies in a bucket, or in its twin */
    size_t bucket_cap_bytes;
    bool broadcast_buffers;         /* at each forward that is trained on and follows one with `sync` */
    bool sync;                      /* average in backward passes */
    bool synced;                    /* `sync` when the last forward that is trained on began */
    bool stepping;                  /* a pass that averages has begun */
    bool told;                      /* the pass failed after its last bucket: no rank waits for this one */
    bool rebuilt;                   /* buckets are in the order in which the first step made gradients */
    char **ignored;                 /* names in .ignored, NULL last; NULL: none */
    char **delayed;                 /* names in .delay_all_reduce, NULL last; NULL: none */
    int virtual_ranks;              /* 0: none */
    uint64_t shard_seed;            /* seeds the random numbers of shards; 0: the generator is left alone */
    int64_t step;                   /* steps done, with virtual ranks */
    tt__ddp_shards *shards;         /* of virtual ranks; NULL: none, or bound to no group */
    bool sums_shards;               /* gradients are added to sums on the host, one by one */
    tt__ddp_stepper *stepper;       /* NULL: the program steps its optimizer */
    tt__ddp_presence *presence;     /* NULL: all ranks have the same number of steps */
    const tt__ddp_watcher *watcher; /* or NULL */
    void *watcher_user;
    tt__ddp_hook hook;
    tt__ddp_device device;
    tt__ddp_times times;
    tt__pass_watcher passes;
    tt_module **known_as; /* set to NULL when the wrapper is freed: tt__ddp_know(); or NULL */
};

/* What errors of calls in wrapping and in a forward name instead of a file. */
#define DDP_SITE "tt_ddp"

/* ---- ddp.c ---- */

/* The state of a wrapper; NULL if the module is none. */
tt__ddp *tt__ddp_of(tt_module *module);

/* The beginning of a forward: take buffers, or begin a shard. Does nothing unless the forward is recorded. */
tt_status tt__ddp_before_forward(const tt_module *wrapper, tt__ddp *d);

/* Average as without a hook from now on. Not collective: all ranks do it between the same steps. */
void tt__ddp_drop_hook(tt__ddp *d);

/* ---- ddp_names.c ---- */

/* Copy .ignored and .delay_all_reduce. tt__ddp_free_names() frees them, also after a failure. */
tt_status tt__ddp_keep_names(tt__ddp *d, const tt_ddp_args *args);
void tt__ddp_free_names(tt__ddp *d);

/* Is the tensor `name`, or a child that it lies below, among these names? `names` ends with NULL; NULL: none. */
bool tt__ddp_is_named(char *const *names, const char *name);

/* The first name in .ignored (.delay_all_reduce) that stands for no parameter or buffer (no parameter); or NULL. */
const char *tt__ddp_unknown_ignored(const tt__ddp *d, const tt_named_tensors *parameters,
                                    const tt_named_tensors *buffers);
const char *tt__ddp_unknown_delayed(const tt__ddp *d, const tt_named_tensors *parameters);

/* Refuse names that don't fit the module. Ranks that have compared their lists and unknown names get the same error. */
tt_status tt__ddp_check_names(const tt__ddp *d, const tt_named_tensors *parameters, const tt_named_tensors *buffers);

/* Make a tensor, or a list of them, rank `root`'s; _shared: those of the list that aren't in .ignored. Errors have the
 * name in front. Collective. */
tt_status tt__ddp_take_one(tt_group *group, const char *name, tt_tensor *x, int root);
tt_status tt__ddp_take(tt_group *group, const tt_named_tensors *list, int root);
tt_status tt__ddp_take_shared(const tt__ddp *d, const tt_named_tensors *list, int root);

/* ---- ddp_bind.c ---- */

/* Bind to the group, whose ranks have the same parameters; `take`: take rank 0's first. */
tt_status tt__ddp_attach(tt__ddp *d, tt_group *group, bool take);

/* Move the module's gradients back to memory of their own, with their values, and let go of the group. A parameter that
 * was frozen meanwhile has none. */
void tt__ddp_detach(tt__ddp *d);

/* ---- ddp_pass.c ---- */

/* The hook of each parameter, with its slot: note that the gradient is final. */
tt_status tt__ddp_on_gradient(tt_tensor *x, void *user);

/* A backward pass has failed (reach.h): abandon the step if the pass would have reached it. */
void tt__ddp_pass_failed(void *user, const tt__reach *reach);

/* Take part in a step of the other ranks, with no gradient, or with those of passes without `sync`. */
tt_status tt__ddp_shadow_step(tt__ddp *d);

/* ---- ddp_step.c ---- */

/* Refuse, in call `who`, a tt_join that doesn't go with an optimizer that steps in the backward pass. */
tt_status tt__ddp_check_stepper(const char *who, const tt__ddp_presence *presence, bool zero_grad);

/* ---- ddp_shards.c ---- */

/* Refuse virtual ranks that this group can't have. */
tt_status tt__ddp_check_shards(const tt__ddp *d, const tt_group *group);

/* Give a new reducer its shards; let go of them. Both do nothing without virtual ranks. */
tt_status tt__ddp_attach_shards(tt__ddp *d);
void tt__ddp_detach_shards(tt__ddp *d);

/* A forward that is recorded begins: begin the next shard, unless one is open. Needs d->shards. */
tt_status tt__ddp_begin_shard(tt__ddp *d);

/* Does the current pass end the step? */
bool tt__ddp_shard_is_last(const tt__ddp *d);

/* A gradient is final, in a shard that isn't the last. */
tt_status tt__ddp_shard_gradient(tt__ddp_slot *slot);

/* Add a final gradient to the sums of shards, if there are any, before it is marked. */
tt_status tt__ddp_add_to_shards(const tt__ddp_slot *slot);

/* The step has been averaged: go back to the first shard. */
tt_status tt__ddp_end_shards(tt__ddp *d);

/* How many shards this rank has, from *first on; 0: the wrapper is bound to no group. */
int tt__ddp_shard_count(const tt__ddp *d, int *first);

tt_status tt__ddp_set_step(tt__ddp *d, int64_t step);

/* ---- ddp_sparse.c ---- */

/* Has the slot's parameter a gradient, whole or in rows? */
bool tt__ddp_has_gradient(const tt__ddp_slot *s);

/* Refuse, by its name, a sparse parameter that doesn't fit the wrapper's other options. `all`: the module's
 * parameters. */
tt_status tt__ddp_check_sparse(const tt__ddp *d, const tt_named_tensors *all);

/* Refuse the wrapper's first sparse parameter, by its name, in call `who`, which takes none. */
tt_status tt__ddp_refuse_sparse(const char *who, const tt__ddp *d);

/* The buckets have ended: average the rows of the parameters that any rank used. Collective. */
tt_status tt__ddp_average_rows(tt__ddp *d);

/* ---- ddp_device.c ---- */

/* Refuse parameters on several devices, and a back end of the group that takes neither the device's memory nor the
 * host's. */
tt_status tt__ddp_check_devices(const tt__ddp *d, const tt_group *group, const tt_named_tensors *parameters);

/* Where the buckets of the wrapper's slots lie: on their device, or (NULL) on the host. */
const tt__reducer_place *tt__ddp_place(tt__ddp *d);

/* The reducer was made: find out which ranks reach each other's devices, and give each bucket on the host a twin on the
 * parameters' device, if that isn't the host. Collective, also for parameters on the host. */
tt_status tt__ddp_attach_device(tt__ddp *d);

/* The reducer has new buckets: give them twins, if the old ones had some. The old twins stay until
 * tt__ddp_drop_old_twins(). Collective as above. */
tt_status tt__ddp_remake_twins(tt__ddp *d);
void tt__ddp_drop_old_twins(tt__ddp *d);

/* No gradient lies in a bucket or twin any more: free the twins, leave the peers, and wait for copies. */
void tt__ddp_detach_device(tt__ddp *d);

/* Where the gradient of slot i lies: in a bucket, or in its twin. */
void *tt__ddp_gradient_place(const tt__ddp *d, size_t i);

/* If the slot's gradient lies in a twin, copy it (zeros if there is none) to its bucket on the host, and wait. */
tt_status tt__ddp_bring_gradient(const tt__ddp_slot *slot);

/* Overwrite the slot's gradient, whether it has one or not, with zeros. */
tt_status tt__ddp_clear_gradient(const tt__ddp_slot *slot);

#endif
