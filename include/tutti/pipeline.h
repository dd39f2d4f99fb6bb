/* tutti/pipeline.h: pipelines: a model is cut into stages, which ranks run one behind the other on micro-batches.
 *
 * A model is a chain of parts. Those of a Sequential are its children (those of Sequentials in it counted one by one),
 * of tt_model_gpt() and tt_model_gpt2() embedding, blocks and head, of tt_model_resnet18() and its like stem, blocks
 * and head. Another model names its parts in its class (part_count, nn.h), or is one part. A module with forward hooks,
 * or prepared by tt_amp_initialize(), is one part. The parts must not change after tt_pipeline_new(): add hooks and
 * children, and call tt_amp_initialize(), before it. Stages are runs of parts. With R ranks and C stages a rank, rank r
 * runs stages r, R + r, 2 R + r, ... One tensor of floats goes from a stage to the next; its shape may differ from step
 * to step.
 *
 * A step cuts the batch along dimension 0 into micro-batches, whose sizes differ by one at most (the first are larger,
 * as torch.tensor_split() cuts), runs them by a schedule, and leaves in tt_grad() the gradient of the mean over the
 * whole batch. Each parameter's gradient is a sum in the order of the micro-batches, whatever the schedule, the split
 * or the number of ranks: bitwise the gradient of one process that runs the same micro-batches one after the other,
 * with each loss scaled by its share of the batch.
 *
 * Each rank's stages lie on the device to which it has moved its model (tt_module_to_device()), and x and target with
 * them. Tensors between stages go over the host.
 *
 * Batch norms see micro-batches, as in PyTorch, and their running statistics follow in the order of the micro-batches.
 * Dropout draws from each rank's default generator, so its draws differ from one process's, unless .seed is given.
 *
 * Threads: as parallel.h. Every call here but tt_pipeline_module() and tt_pipeline_part_count() is collective over the
 * pipeline's group. */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H

#include <tutti/parallel.h>

TT_BEGIN_DECLS

typedef struct tt_pipeline tt_pipeline;

/* The order of a rank's actions (docs/parallel.md draws them). R: ranks; F, B: the times of a stage's forward and
 * backward; idle: per step. */
typedef enum tt_pipeline_schedule {
    TT_PIPELINE_1F1B,  /* idle (R - 1) (F + B); a rank holds at most R micro-batches. PyTorch: Schedule1F1B */
    TT_PIPELINE_GPIPE, /* the same idle time; holds all micro-batches. ScheduleGPipe */
    TT_PIPELINE_INTERLEAVED_1F1B, /* idle (R - 1) (F + B) / C, by C stages a rank. ScheduleInterleaved1F1B */
    /* backward in two halves; that of the weights fills idle time: ZB-H1. With C > 1 ScheduleInterleavedZeroBubble */
    TT_PIPELINE_ZERO_BUBBLE
} tt_pipeline_schedule;

/* "1F1B", "GPipe", "interleaved 1F1B", "zero-bubble"; "?" for another number. Thread-safe. */
TT_API const char *tt_pipeline_schedule_name(tt_pipeline_schedule schedule);

/* The loss of a micro-batch, one element: its mean over the examples, or their sum (.loss_is_sum). NULL: it failed. */
typedef tt_tensor *(*tt_pipeline_loss)(tt_tensor *y, tt_tensor *target, void *user);

typedef struct tt_pipeline_new_args {
    tt_pipeline **out;     /* required: receives the pipeline */
    tt_group *group;       /* required: its ranks are the stages' ranks, in order; borrowed */
    tt_module *model;      /* required: the whole model, alike on all ranks; borrowed, must outlive the pipeline */
    int64_t micro_batches; /* required */
    TT_OPTIONS;
    tt_pipeline_schedule schedule; /* TT_PIPELINE_1F1B */
    int64_t chunks;                /* stages a rank; 0: 2 for interleaved 1F1B, else 1 */

    /* How many parts each stage has, for all R x chunks stages. NULL: see .sample. */
    const int64_t *split;
    int64_t split_count;
    /* Without .split: rank 0 times each part's forward and backward on this micro-batch (needed on rank 0 only), and
     * the slowest stage is made as fast as possible. Without both: parts are divided evenly. */
    tt_tensor *sample;

    tt_pipeline_loss loss;   /* for the last stage; NULL: the mean (or sum) of cross_entropy over classes */
    void *user;              /* handed to it; borrowed */
    bool loss_is_sum;        /* over examples, not their mean */
    bool recompute;          /* hold a stage's inputs, not its activations, and run its forward again in backward */
    uint64_t seed;           /* not 0: draws depend on it, the step, the micro-batch and the part, not on the ranks */
    tt_group *data_group;    /* the ranks that run the same stages on other data: gradients are averaged over them */
    size_t bucket_cap_bytes; /* see tt_ddp() */
    bool own_weights;        /* each rank has loaded its own stages' parameters only: don't compare them */
    char tt_end;             /* not an option: see base.h */
} tt_pipeline_new_args;

/* Make a pipeline. Collective over `group`, and over `data_group` where there is one: each rank then takes the
 * parameters of that group's rank 0, as tt_ddp() does. Within a pipeline all ranks must have the same parameters, also
 * those of other ranks' stages: begin all ranks with one seed, or load one file. If a pipeline has trained the model,
 * call tt_pipeline_gather() first. Hashes are compared, without a further message. With `.own_weights` each rank's
 * parameters of its own stages count, whatever the others have. With a `data_group` only those of its rank 0s are
 * compared.
 *   tt_pipeline_new(&pipe, world, model, 16, .schedule = TT_PIPELINE_ZERO_BUBBLE, .sample = x)
 *   tt_pipeline_new(&pipe, world, model, 8, .split = (const int64_t[]){3, 2}, .split_count = 2)
 * PyTorch: PipelineStage, Schedule1F1B, ... of torch.distributed.pipelining.
 * Errors: TT_ERR_INVALID a split that doesn't fit the model, more stages than parts, micro-batches that the schedule
 * can't have, a parameter that several stages use (tied weights: keep their parts in one stage, or untie them);
 * TT_ERR_MISMATCH, by name, on all ranks: options, models, parameters' values or the presence of a `data_group` differ
 * within a pipeline, or all of these but values between pipelines beside each other; TT_ERR_TIMEOUT a whole pipeline
 * has no `data_group` and its counterparts have one: they wait until the group's timeout, and name the missing ranks;
 * TT_ERR_PEER another rank failed, with its error; those of a collective and of tt_ddp(). After TT_ERR_MEMORY on a
 * rank, or a difference in `data_group`, a group may have been aborted (TT_ERR_ABORTED). */
TT_API TT_NODISCARD tt_status tt_pipeline_new_with(const tt_pipeline_new_args *args, size_t size);

/* Free it; the model stays, with its trained parameters. Collective as tt_reducer_free() is. NULL is allowed. */
TT_API void tt_pipeline_free(tt_pipeline *pipeline);

/* A module of what this rank trains: parameters and buffers of its stages, with their names in the model (borrowed).
 * For optimizers, clipping and state dicts:
 *   tt_adamw(tt_module_parameters(tt_pipeline_module(pipe)), 3e-4, 0.01)
 * It has no forward of its own. NULL for NULL. */
TT_API tt_module *tt_pipeline_module(tt_pipeline *pipeline);

typedef struct tt_pipeline_step_args {
    tt_pipeline *pipeline; /* required */
    tt_tensor *x;          /* required on rank 0: the batch; ignored elsewhere, may be NULL */
    tt_tensor *target;     /* required on the last rank; ignored elsewhere, may be NULL */
    TT_OPTIONS;
    double *loss; /* on the last rank: the mean (or sum) over the batch; elsewhere left alone */
    char tt_end;  /* not an option: see base.h */
} tt_pipeline_step_args;

/* Run all micro-batches forward and backward. Gradients are added to those that are there, so zero them between steps;
 * with a `data_group` they are averaged over it, once a step.
 *   tt_pipeline_step(pipe, x, target, .loss = &loss)
 * PyTorch: schedule.step(x) on the first rank, step(target=target, losses=losses) on the last, step() between. Records
 * also under TT_NO_GRAD. Blocks until all ranks' parts are done. Each wait for another rank has the group's timeout.
 * Errors, on every rank: TT_ERR_INVALID no x or target where one is needed, batches of different sizes, fewer examples
 * than micro-batches; TT_ERR_MISMATCH one rank evaluates; TT_ERR_STATE a rank's model has other parts now. If a rank
 * dies, freezes or fails within a step: TT_ERR_PEER, TT_ERR_TIMEOUT, with what was waited for ("rank 1 waited for the
 * activations of micro-batch 3 from stage 0") or why it failed. Each rank of that pipeline aborts its `data_group`, so
 * that the ranks of other pipelines learn of the failure when they average (TT_ERR_ABORTED or TT_ERR_PEER, with the
 * reason). Errors of the model and the loss. After an error within the step gradients are undefined, and the pipeline
 * can only be freed (TT_ERR_STATE). */
TT_API TT_NODISCARD tt_status tt_pipeline_step_with(const tt_pipeline_step_args *args, size_t size);

typedef struct tt_pipeline_evaluate_args {
    tt_pipeline *pipeline; /* required */
    tt_tensor *x;          /* as in tt_pipeline_step() */
    tt_tensor *target;     /* as in tt_pipeline_step(), but required only with .loss */
    TT_OPTIONS;
    double *loss; /* on the last rank */
    /* on the last rank: receives the output of the whole batch, in the open scope as an operator's result */
    tt_tensor **y;
    char tt_end; /* not an option: see base.h */
} tt_pipeline_evaluate_args;

/* Run the forward only, without recording, in the model's current mode (tt_module_eval()). The rest is as in
 * tt_pipeline_step(); a batch of fewer examples than micro-batches is cut into single examples. PyTorch:
 * schedule.eval(). */
TT_API TT_NODISCARD tt_status tt_pipeline_evaluate_with(const tt_pipeline_evaluate_args *args, size_t size);

/* Copy the parameters and buffers of all stages to each rank's model, to save it whole or to use it unsplit. Errors:
 * TT_ERR_STATE, TT_ERR_MISMATCH a model has other parts now; those of a collective. */
TT_API TT_NODISCARD tt_status tt_pipeline_gather(tt_pipeline *pipeline);

/* How the last training step went. */
typedef struct tt_pipeline_times {
    double step_ms;    /* from the first rank's beginning to the last one's end */
    double idle_share; /* share of all ranks' time, 0..1, spent waiting and moving tensors */
    /* idle_share of the schedule, if each kind of action took its measured mean in each stage */
    double simulated_idle_share;
    double rank_busy_ms; /* this rank's */
} tt_pipeline_times;

/* Fill *times; all but rank_busy_ms is the same on all ranks. TT_ERR_STATE: there was no step yet. */
TT_API TT_NODISCARD tt_status tt_pipeline_get_times(tt_pipeline *pipeline, tt_pipeline_times *times);

/* Write the actions of the last training step to `path` (rank 0's; others' is ignored, may be NULL), as a trace that
 * Perfetto shows and `tutti trace --pipeline` draws. The file is written whole or not at all. Errors, on all ranks:
 * TT_ERR_STATE no step yet; TT_ERR_INVALID no path; TT_ERR_IO. */
TT_API TT_NODISCARD tt_status tt_pipeline_write_trace(tt_pipeline *pipeline, const char *path);

/* The number of parts of a model; 0 for NULL. */
TT_API int64_t tt_pipeline_part_count(tt_module *model);

/* The number of stages (0 for NULL); the number of parts of stage `stage` (-1: no such stage). */
TT_API int64_t tt_pipeline_stage_count(const tt_pipeline *pipeline);
TT_API int64_t tt_pipeline_stage_parts(const tt_pipeline *pipeline, int64_t stage);

#define TT_PIPELINE_NEW_ARGS_INIT TT_ARGS_INIT
#define TT_PIPELINE_STEP_ARGS_INIT TT_ARGS_INIT
#define TT_PIPELINE_EVALUATE_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_pipeline_new(out_, group_, model_, ...)                                                              \
    tt_pipeline_new_with(TT_ARGS(tt_pipeline_new_args, .out = TT_PLACE(tt_pipeline *, out_), .group = (group_), \
                                 .model = (model_), .micro_batches = __VA_ARGS__))
#define tt_pipeline_step(pipeline_, x_, ...) \
    tt_pipeline_step_with(TT_ARGS(tt_pipeline_step_args, .pipeline = (pipeline_), .x = (x_), .target = __VA_ARGS__))
#define tt_pipeline_evaluate(pipeline_, x_, ...) \
    tt_pipeline_evaluate_with(                   \
        TT_ARGS(tt_pipeline_evaluate_args, .pipeline = (pipeline_), .x = (x_), .target = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
