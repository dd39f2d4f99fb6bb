/* What a DDP wrapper is made of, and what its files do for each other:
 *
 *   ddp.c                       a wrapper's life, its forward, its public calls
 *   ddp_step_begin.c            hands an optimizer to the backward pass
 *   ddp_bind.c                  binds the wrapper to a group: what must be alike on all ranks, the reducer
 *   ddp_names.c                 parameters that the program names, to be left out or averaged last
 *   ddp_pass.c                  the backward pass: each gradient is marked ready, the end of the pass waits
 *   ddp_step.c                  an optimizer steps inside the pass
 *   ddp_shards.c                virtual ranks
 *   ddp_presence.c              steps in which not all ranks take part
 *   ddp_sparse.c                sparse gradients
 *   ddp_rebuild.c               buckets in the order of the first step
 *   ddp_device.c, ddp_place.c   gradients on a device: copied from there, or averaged there
 *   ddp_hook.c, ddp_logging.c, ddp_take.c   the communication hook, statistics, tensors taken from one rank */
#ifndef TT_PARALLEL_DDP_STATE_H
#define TT_PARALLEL_DDP_STATE_H

#include "autograd/reach.h"
#include "reducer/reducer.h"

#include <tutti/nn.h>
#include <tutti/parallel.h>

typedef struct tt__ddp tt__ddp;
typedef struct tt__ddp_shards tt__ddp_shards;
typedef struct tt__ddp_stepper tt__ddp_stepper;
typedef struct tt__ddp_twins tt__ddp_twins;

/* An optimizer, or what else works with a wrapper's gradients. */
typedef struct tt__ddp_watcher {
    void (*stepped)(void *user);  /* a pass has averaged them */
    void (*detached)(void *user); /* they are about to go: the wrapper is freed or leaves its group. Called once */
    bool takes_all;               /* it takes averages out of the buckets: parameters get none */
} tt__ddp_watcher;

/* One parameter that requires a gradient. */
typedef struct tt__ddp_slot {
    tt__ddp *owner;
    size_t index;         /* in the reducer */
    tt_tensor *parameter; /* a reference, so that module and wrapper may be freed in any order */
    bool ready;           /* the reducer knows that it takes part in the step under way, or that it does not */
    bool touched;         /* a pass since the last step gave it a gradient, also one that averaged nothing */
    bool absent;          /* it has no gradient here in the step under way */
    bool delayed;         /* it is averaged when the pass has ended */
    bool sparse;          /* its gradients are of some rows, and not in a bucket: ddp_sparse.h */
    bool gives;           /* sparse: this rank's rows take part in the average of the step under way */
} tt__ddp_slot;

/* Who takes part in steps, where ranks have different numbers of them: uneven_join.c. */
typedef struct tt__ddp_presence {
    tt__ddp *ddp;           /* NULL: the wrapper was freed */
    bool divide_by_present; /* average over the ranks that gave gradients */
    int64_t nominal;        /* not 0: weight gradients by examples, so many of which count as one share */
    bool ends_early;        /* fail where a rank has no more data */
    int64_t examples;       /* of this rank's next step */
    int64_t steps;          /* that have ended since the last wait */
    int root;               /* the lowest rank that gave gradients in the last step; 0 before */
    int present;            /* how many did */
} tt__ddp_presence;

struct tt__ddp {
    tt_module *module; /* kept by the wrapper, as `wrapped` of its class */
    tt_group *group;   /* NULL: bound to none */
    size_t bucket_cap_bytes;
    bool broadcast_buffers; /* at each forward that is trained on and follows one with `sync` */
    bool sync;              /* average in backward passes */
    bool synced;            /* when the last forward that is trained on began */
    bool stepping;          /* a pass that averages has begun */
    char **ignored;         /* names in .ignored, NULL last; NULL: none */
    char **delayed;         /* names in .delay_all_reduce, NULL last; NULL: none */
    int virtual_ranks;      /* 0: ranks are what they are */
    uint64_t shard_seed;    /* of what shards draw; 0: the generator is left alone */
    int64_t step;           /* steps done, with virtual ranks */
    tt__ddp_shards *shards; /* of them; NULL: none, or bound to no group */
    bool sums_shards;       /* gradients are added to sums on the host, one by one */
    tt_ddp_logging_data log;
    int64_t mean_ns[4]; /* of its times */
    int64_t forward_ns; /* of forwards since the last step */
    int64_t first_ns;   /* when the first gradient of the pass that averages came */
    bool rebuilt;       /* buckets are in the order that the first step has shown */
    tt_reducer *reducer;
    tt__ddp_slot *slots;
    size_t attached;      /* slots whose gradient lies in a bucket, or in its twin */
    tt__ddp_twins *twins; /* of the buckets, where parameters lie on a device: ddp_device.h; NULL: there are none */
    struct tt__device_peers *peers; /* whose twins the ranks add up where they lie; NULL: on the host */
    tt__reducer_place place; /* of the buckets, where the group's back end takes that device's memory: ddp_place.h */
    const tt_device *place_device;
    const tt_comm_hook *hook; /* NULL: none. It goes with the wrapper from group to group */
    void *hook_state;
    void (*hook_destroy)(void *state); /* NULL: hook_state is borrowed */
    char *hook_settings;               /* or NULL */
    tt__ddp_presence *presence;        /* NULL: all ranks have the same number of steps */
    const tt__ddp_watcher *watcher;    /* or NULL */
    void *watcher_user;
    tt__ddp_stepper *stepper; /* NULL: the program steps its optimizer */
    tt__pass_watcher passes;
    bool told;            /* the pass failed after its last bucket: no rank waits for this one */
    tt_module **known_as; /* where the wrapper is known by others, until it is freed; or NULL */
};

/* The name that errors of calls in wrapping and in a forward have instead of a file. */
#define DDP_SITE "tt_ddp"

/* ddp_pass.c: a backward pass has failed (reach.h): abandon the step if the pass would have reached it. */
void tt__ddp_pass_failed(void *user, const tt__reach *reach);

/* ddp_pass.c: note that a gradient is final. The hook of each parameter, with its slot. */
tt_status tt__ddp_on_gradient(tt_tensor *x, void *user);

/* Take part in a step of the others, without a gradient; or with those that passes without `sync` have left. */
tt_status tt__ddp_shadow_step(tt__ddp *d);

/* ddp_presence.c: say who takes part before a step's first gradient is marked; weight this rank's share of a gradient;
 * and learn what the others were, when the step has ended: TT_ERR_STATE a rank that has no more data, where that is an
 * error. */
void tt__ddp_announce(tt__ddp *d, bool present);
tt_status tt__ddp_weigh(const tt__ddp_slot *s);
tt_status tt__ddp_step_ended(tt__ddp *d);

/* ddp_rebuild.c: when the first step has ended, form buckets in the order that it has shown. */
tt_status tt__ddp_rebuild(tt__ddp *d);

/* ddp_step.c: the pass has averaged everything: step the optimizer's parameters that lie in no bucket (sparse ones, and
 * those that the wrapper doesn't average). */
tt_status tt__ddp_step_rest(const tt__ddp *d);

/* Leave the optimizer to the program again. */
void tt__ddp_end_stepper(tt__ddp *d);

/* ddp_step_begin.c: refuse, in call `who`, a tt_join beside an optimizer that steps in the backward pass, where they
 * don't fit together. */
tt_status tt__ddp_check_stepper(const char *who, const tt__ddp_presence *presence, bool zero_grad);

/* Has the stepper .zero_grad? */
bool tt__ddp_stepper_zeroes(const tt__ddp_stepper *stepper);

/* ddp_logging.c: note a step, whose last gradient was ready at `ready_ns`, and which has ended now. */
void tt__ddp_log_step(tt__ddp *d, int64_t ready_ns);

/* ddp.c: what a forward that is recorded begins with. */
tt_status tt__ddp_before_forward(const tt_module *wrapper, tt__ddp *d);

/* ddp.c: the inside of a wrapper; NULL if it is none. */
tt__ddp *tt__ddp_of(tt_module *module);

/* ddp_bind.c: bind to the group, of whose ranks all have the same parameters, or (`take`) take rank 0's. */
tt_status tt__ddp_attach(tt__ddp *d, tt_group *group, bool take);

/* Move the module's gradients back to memory of their own, with their values, and let go of the group. A parameter that
 * was frozen meanwhile has none. */
void tt__ddp_detach(tt__ddp *d);

/* ddp_hook.c: have the reducer, which is new, average by the wrapper's hook, if there is one. */
tt_status tt__ddp_use_hook(tt__ddp *d);

/* Release the hook's state. */
void tt__ddp_end_hook(tt__ddp *d);

/* Average as without a hook from now on. Not collective: all ranks do it between the same steps. */
void tt__ddp_drop_hook(tt__ddp *d);

/* Average by this hook from now on; its state stays the caller's on failure. */
tt_status tt__ddp_set_hook(tt__ddp *d, const tt_ddp_register_comm_hook_args *args);

/* ddp_take.c: make a tensor, or a list of them, rank `root`'s. Errors have the name in front. Collective. */
tt_status tt__ddp_take_one(tt_group *group, const char *name, tt_tensor *x, int root);
tt_status tt__ddp_take(tt_group *group, const tt_named_tensors *list, int root);

#endif
