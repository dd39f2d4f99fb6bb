/* What the files of pipelines share. Who calls whom: pipeline.c > pipeline_run.c > pipeline_channel.c,
 * pipeline_stages.c; pipeline_replicas.c, pipeline_times.c and pipeline_split.c stand beside. */
#ifndef TT_PARALLEL_PIPELINE_OWN_H
#define TT_PARALLEL_PIPELINE_OWN_H

#include "parallel/pipeline/pipeline_schedule.h"
#include "tensor/random/generator.h"

#include <tutti/pipeline.h>

/* Which way: activations go to the next stage, their gradients to the one before. */
typedef enum tt__way { TT__ONWARD, TT__BACK } tt__way;

/* A tensor that was sent as a message, and is not there yet. */
typedef struct tt__sending {
    struct tt__sending *next;
    tt_work *work;
    tt_tensor *tensor; /* kept */
} tt__sending;

/* Tensors between two stages of this rank. */
typedef struct tt__handed {
    struct tt__handed *next;
    tt_tensor *tensor; /* kept */
} tt__handed;

typedef struct tt__channels {
    tt_group *group; /* held */
    int rank, ranks;
    const tt_device *device; /* where this rank's stages lie: what comes is brought there; NULL: the host */
    int64_t chunks;
    int64_t slots;         /* of each of this rank's outgoing channels */
    size_t slot_bytes;     /* 0: there are none */
    bool no_room;          /* for slots: not to be asked for again */
    unsigned char *memory; /* this rank's: counts of what it took, then its slots */
    int64_t *offsets;      /* (ranks): of all ranks' memory; -1: not to be reached */
    uint64_t *sent;        /* (chunks, 2): tensors that went through slots, by outgoing channel */
    size_t wanted_bytes;   /* the largest tensor that was sent */
    tt__sending *sendings;
    tt__handed **handed; /* (chunks, 2): by the sender's channel */
    int failed_rank;     /* that another rank has told of; -1: none */
    char failure[400];   /* its error */
    bool differs;        /* what failed is that ranks differ (TT_ERR_MISMATCH), not a rank */
} tt__channels;

/* A micro-batch under way in a stage. */
typedef struct tt__held {
    tt_scope *scope;                /* of what its forward made; NULL: it is not under way */
    tt_tensor *x, *y;               /* in the scope: what the stage took, and gave, or the loss */
    tt_generator *draws;            /* with recomputing: the generator before the forward */
    tt_deferred_backward *deferred; /* the weights' half */
} tt__held;

typedef struct tt__stage {
    tt_pipeline *pipe;
    int64_t index, first_part, last_part; /* parts [first_part, last_part) */
    tt_module *module;                    /* runs them; has their parameters */
    tt_module *ddp;                       /* around it; NULL: no data group, or nothing is trained */
    tt__held *held;                       /* (micros) */
    int64_t micro;                        /* that its forward runs */
} tt__stage;

/* When an action of the last step ran, from the step's beginning. */
typedef struct tt__ran {
    int64_t begin_ns, end_ns;
} tt__ran;

struct tt_pipeline {
    tt_group *group, *data_group;
    int rank, ranks;
    tt_module *model;
    int64_t micros, chunks, stages;
    int64_t *first_part;    /* (stages + 1) */
    uint64_t parts_summary; /* of the model's parts, of which it is made */
    tt_pipeline_schedule kind;
    tt__schedule train, forward;
    tt_pipeline_loss loss;
    void *user;
    bool loss_is_sum, recompute;
    uint64_t seed;
    tt__stage *stage;  /* (chunks): this rank's */
    tt_module *module; /* all their parameters */
    tt__channels channels;
    tt_status broken; /* a step failed */
    int64_t steps;    /* training steps begun */
    tt__ran *ran;     /* (actions of this rank's list): of the last training step */
    bool has_run;     /* there was one */
};

/* ---- pipeline_replicas.c ---- */

/* Compare options with the pipelines beside this one, in the data group, which there is. `status`: how the comparison
 * within this one went, its last error. Collective over both groups. TT_OK also where the counterparts are missing
 * while other ranks of this pipeline have heard of a failure: those return it. */
tt_status tt__pipeline_agree_with_replicas(const tt_pipeline_new_args *args, const char *const *texts, size_t count,
                                           tt_status status);

/* ---- pipeline_split.c ---- */

/* The number of parts of each stage, into first_part (stages + 1): by hand, by cost, or alike. Collective; all ranks
 * return the same. */
tt_status tt__pipeline_split(const tt_pipeline_new_args *args, int64_t parts, int64_t stages, int64_t *first_part);

/* Cut parts with these costs into runs, so that the most expensive one costs as little as can be: at least one part
 * each. parts >= stages. TT_ERR_MEMORY. */
tt_status tt__split_by_cost(const double *costs, int64_t parts, int64_t stages, int64_t *first_part);

typedef struct tt__split_sizes {
    int64_t parts, stages, ranks, micros;
} tt__split_sizes;

/* The same for a step, where ranks may have several stages each: the busiest rank counts, and the slowest stage for
 * what others wait. */
tt_status tt__split_by_schedule(const double *costs, const tt__split_sizes *sizes, int64_t *first_part);

/* ---- pipeline_stages.c ---- */

/* Check that each parameter of the model belongs to the parts of one stage; TT_ERR_INVALID names the first that does
 * not. */
tt_status tt__stages_check(const tt_pipeline *pipe);

/* Make this rank's stages' modules, and the one of all. */
tt_status tt__stages_make(tt_pipeline *pipe, const tt_pipeline_new_args *args);
void tt__stages_free(tt_pipeline *pipe);

/* Forget a micro-batch. */
void tt__held_drop(tt__held *held);

/* Run the stage's forward on x, of micro-batch `micro`. `again`: in backward, with the draws of the first time, and
 * leaving buffers as they are. */
tt_tensor *tt__stage_forward(tt__stage *stage, int64_t micro, tt_tensor *x, bool again);

/* ---- pipeline_run.c ---- */

/* A step's data. */
typedef struct tt__batch {
    bool train;
    tt_tensor *x, *target; /* NULL where this rank needs none */
    int64_t examples;
    bool wants_loss, wants_y;
    double loss;    /* comes out */
    tt_tensor **ys; /* (micros), or NULL: come out, kept */
} tt__batch;

/* Run this rank's list. Collective: fails on all ranks, if on one. */
tt_status tt__pipeline_run(tt_pipeline *pipe, tt__batch *batch);

/* Micro-batch m's examples: how many come before, how many it has. */
int64_t tt__micro_begin(int64_t examples, int64_t micros, int64_t m);

/* ---- pipeline_channel.c ---- */

tt_status tt__channels_init(tt__channels *c, tt_group *group, int64_t chunks);

/* Once, before tensors are sent: how many slots each outgoing channel is to have. */
void tt__channels_set_slots(tt__channels *c, int64_t slots);

/* Collective, and never fails. */
void tt__channels_end(tt__channels *c);

/* How large slots this rank would like; 0: none, as no rank that it sends to can reach them. */
size_t tt__channels_want(const tt__channels *c);

/* Collective: have slots of at least `bytes`, the most that any rank wants, or none from then on, where the heap has no
 * room for them on some rank. */
tt_status tt__channels_grow(tt__channels *c, size_t bytes);

/* Send x out of this rank's chunk, for micro-batch m. x is read before it returns, or kept. */
tt_status tt__channel_send(tt__channels *c, int64_t chunk, tt__way way, int64_t m, tt_tensor *x);

/* Receive what comes into this rank's chunk for micro-batch m; it is made in the open scope. NULL on failure, which
 * says what was waited for. */
tt_tensor *tt__channel_recv(tt__channels *c, int64_t chunk, tt__way way, int64_t m);

/* Wait until all that was sent is there. */
tt_status tt__channels_flush(tt__channels *c);

/* Collective, also where this rank has failed (tt__channels_mark_failed()): did all come through? TT_ERR_PEER names the
 * rank that did not, and `where`, unless it is this one, whose error stays. */
tt_status tt__channels_settle(tt__channels *c, const char *where);

/* This rank has failed, as the thread's last error says, unless it was told of another's failure: remember it. Keeps
 * that error. */
void tt__channels_mark_failed(tt__channels *c);

/* The same, and let the neighbours know. */
void tt__channels_fail(tt__channels *c);

#endif
