/* What the files of pipelines share. pipeline.c calls pipeline_run.c, which calls pipeline_channel.c and
 * pipeline_stages.c. pipeline.c also calls pipeline_replicas.c and pipeline_split.c; pipeline_times.c stands alone. */
#ifndef TT_PARALLEL_PIPELINE_OWN_H
#define TT_PARALLEL_PIPELINE_OWN_H

#include "parallel/pipeline/pipeline_schedule.h"
#include "tensor/random/generator.h"

#include <tutti/pipeline.h>

/* TT__ONWARD: activations, to the next stage. TT__BACK: their gradients, to the stage before. */
typedef enum tt__way { TT__ONWARD, TT__BACK } tt__way;

/* A tensor that is being sent as a message. */
typedef struct tt__sending {
    struct tt__sending *next;
    tt_work *work;
    tt_tensor *tensor; /* kept */
} tt__sending;

/* A tensor handed from one stage of this rank to another. */
typedef struct tt__handed {
    struct tt__handed *next;
    tt_tensor *tensor; /* kept */
} tt__handed;

typedef struct tt__channels {
    tt_group *group; /* held */
    int rank, ranks;
    const tt_device *device; /* of this rank's stages: received tensors are moved there; NULL: the host */
    int64_t chunks;
    int64_t slots;         /* of each of this rank's outgoing channels */
    size_t slot_bytes;     /* 0: there are none */
    bool no_room;          /* the heap has no room for slots: don't ask again */
    unsigned char *memory; /* this rank's: counts of the tensors that it took, then its slots */
    int64_t *offsets;      /* (ranks): of all ranks' memory; -1: out of reach */
    uint64_t *sent;        /* (chunks, 2): tensors that went through slots, by outgoing channel */
    size_t wanted_bytes;   /* the largest tensor that was sent */
    tt__sending *sendings;
    tt__handed **handed; /* (chunks, 2): by the sender's channel */
    int failed_rank;     /* a rank that another one said has failed; -1: none */
    char failure[400];   /* its error */
    bool differs;        /* no rank failed, but ranks differ (TT_ERR_MISMATCH) */
} tt__channels;

/* A micro-batch in a stage, between its forward and its backward. */
typedef struct tt__held {
    tt_scope *scope;                /* of the forward's tensors; NULL: no micro-batch */
    tt_tensor *x, *y;               /* in the scope: the stage's input; its output, or the loss */
    tt_generator *draws;            /* with recomputing: the generator before the forward */
    tt_deferred_backward *deferred; /* the weights' half of the backward pass */
} tt__held;

typedef struct tt__stage {
    tt_pipeline *pipe;
    int64_t index, first_part, last_part; /* parts [first_part, last_part) */
    tt_module *module;                    /* runs them; has their parameters */
    tt_module *ddp;                       /* around it; NULL: no data group, or nothing is trained */
    tt__held *held;                       /* (micros) */
    int64_t micro;                        /* the one that its forward runs */
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
    uint64_t parts_summary; /* a hash of the model's parts */
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

/* Compare options with the pipeline's replicas, in the data group, which must not be NULL. `status`: the result of the
 * comparison within this pipeline, its last error. Collective over both groups. Also TT_OK if the counterparts haven't
 * come and other ranks of this pipeline know of a failure: those ranks return it. */
tt_status tt__pipeline_agree_with_replicas(const tt_pipeline_new_args *args, const char *const *texts, size_t count,
                                           tt_status status);

/* ---- pipeline_split.c ---- */

/* Choose the first part of each stage, first_part (stages + 1): by hand, by cost, or evenly. Collective; all ranks get
 * the same. */
tt_status tt__pipeline_split(const tt_pipeline_new_args *args, int64_t parts, int64_t stages, int64_t *first_part);

/* Cut parts with these costs into runs of at least one part, such that the most expensive run costs least.
 * parts >= stages. Errors: TT_ERR_MEMORY. */
tt_status tt__split_by_cost(const double *costs, int64_t parts, int64_t stages, int64_t *first_part);

typedef struct tt__split_sizes {
    int64_t parts, stages, ranks, micros;
} tt__split_sizes;

/* The same for ranks that may have several stages. Minimises the time of a step, estimated from the busiest rank and
 * the slowest stage, for which others wait. */
tt_status tt__split_by_schedule(const double *costs, const tt__split_sizes *sizes, int64_t *first_part);

/* ---- pipeline_stages.c ---- */

/* Check that each parameter of the model belongs to the parts of one stage; TT_ERR_INVALID names the first that does
 * not. */
tt_status tt__stages_check(const tt_pipeline *pipe);

/* Make the modules of this rank's stages, and the one with all their parameters. */
tt_status tt__stages_make(tt_pipeline *pipe, const tt_pipeline_new_args *args);
void tt__stages_free(tt_pipeline *pipe);

/* Free the tensors of a micro-batch. */
void tt__held_drop(tt__held *held);

/* Run the stage's forward on x, of micro-batch `micro`. `again`: repeat it for backward, with the first time's draws,
 * leaving buffers unchanged. */
tt_tensor *tt__stage_forward(tt__stage *stage, int64_t micro, tt_tensor *x, bool again);

/* ---- pipeline_run.c ---- */

/* A step's data. */
typedef struct tt__batch {
    bool train;
    tt_tensor *x, *target; /* NULL where this rank needs none */
    int64_t examples;
    bool wants_loss, wants_y;
    double loss;    /* result */
    tt_tensor **ys; /* result (micros), kept; or NULL */
} tt__batch;

/* Run this rank's list of actions. Collective: fails on all ranks if it fails on one. */
tt_status tt__pipeline_run(tt_pipeline *pipe, tt__batch *batch);

/* The first example of micro-batch m. */
int64_t tt__micro_begin(int64_t examples, int64_t micros, int64_t m);

/* ---- pipeline_channel.c ---- */

tt_status tt__channels_init(tt__channels *c, tt_group *group, int64_t chunks);

/* Set the number of slots of each outgoing channel; once, before tensors are sent. */
void tt__channels_set_slots(tt__channels *c, int64_t slots);

/* Collective, and never fails. */
void tt__channels_end(tt__channels *c);

/* The size of slots that this rank wants; 0: none, as no rank that it sends to could reach them. */
size_t tt__channels_want(const tt__channels *c);

/* Collective: make slots of at least `bytes`, the most that any rank wants. If the heap of some rank has no room, there
 * are no slots from then on. */
tt_status tt__channels_grow(tt__channels *c, size_t bytes);

/* Send x out of this rank's chunk, for micro-batch m. x is read before it returns, or kept. */
tt_status tt__channel_send(tt__channels *c, int64_t chunk, tt__way way, int64_t m, tt_tensor *x);

/* Receive the tensor for this rank's chunk and micro-batch m, in the open scope. NULL: a failure; its error says what
 * was waited for. */
tt_tensor *tt__channel_recv(tt__channels *c, int64_t chunk, tt__way way, int64_t m);

/* Wait until all sent tensors have arrived. */
tt_status tt__channels_flush(tt__channels *c);

/* Collective, also after a failure here (tt__channels_mark_failed()): did all ranks succeed? TT_ERR_PEER names the rank
 * that failed, and `where`; on that rank its own error stays. */
tt_status tt__channels_settle(tt__channels *c, const char *where);

/* Note that this rank has failed, with the thread's last error, unless it was told of another's failure. Keeps that
 * error. */
void tt__channels_mark_failed(tt__channels *c);

/* tt__channels_mark_failed(), and tell the neighbours. */
void tt__channels_fail(tt__channels *c);

#endif
