/* What the files of pipelines share. Who calls whom: pipeline.c > pipeline_run.c > pipeline_channel.c,
 * pipeline_stages.c; pipeline_replicas.c, pipeline_times.c and pipeline_split.c stand beside. */
#ifndef TT_PARALLEL_PIPELINE_OWN_H
#define TT_PARALLEL_PIPELINE_OWN_H

#include "parallel/pipeline/pipeline_channel.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "tensor/random/generator.h"

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

#endif
