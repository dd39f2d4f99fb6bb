/* tutti/trainer.h: the loop that most training programs write: epochs, evaluation, checkpoints, resuming, early
 * stopping, logging. It is made of calls that a program can make itself, and none of the other headers needs it: a loop
 * of another shape is written by hand. */
#ifndef TUTTI_TRAINER_H
#define TUTTI_TRAINER_H

#include <stdio.h>
#include <tutti/amp.h>
#include <tutti/checkpoint.h>
#include <tutti/data.h>
#include <tutti/elastic_training.h>
#include <tutti/local_sgd.h>
#include <tutti/metrics.h>
#include <tutti/parallel.h>

TT_BEGIN_DECLS

/* A run under way, lent to the program's functions. */
typedef struct tt_trainer tt_trainer;

/* Forward pass and loss of a batch: the mean loss over its examples, one element, or NULL after a failure, whose error
 * is recorded. The batch belongs to the loader; a scope is open. tt_trainer_model() gives the module to call.
 *   static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
 *       return tt_cross_entropy(tt_module_forward(tt_trainer_model(t), b->x), b->y);
 *   } */
typedef tt_tensor *(*tt_trainer_step_fn)(tt_trainer *trainer, const tt_batch *batch, void *user);

/* Set a communication hook on the run's wrapper, with `user` of the run; called once, on all ranks. A failure ends the
 * run.
 *   static tt_status compress(tt_module *ddp, void *user) { return tt_powersgd_hook(ddp, .rank = 4); } */
typedef tt_status (*tt_trainer_comm_hook_fn)(tt_module *ddp, void *user);

/* A mean over examples, of all ranks. */
typedef struct tt_trainer_metric {
    const char *name;
    double value;
} tt_trainer_metric;

typedef enum tt_trainer_event {
    TT_TRAINER_BEGIN,     /* before the first step; `text` is the checkpoint that was resumed, or NULL */
    TT_TRAINER_STEP,      /* now and then between steps, for a progress bar: at most ten times a second */
    TT_TRAINER_EPOCH,     /* an epoch has ended, and was evaluated if it was to be */
    TT_TRAINER_EVALUATED, /* an evaluation inside an epoch */
    TT_TRAINER_SAVED,     /* `text` is the checkpoint's path */
    TT_TRAINER_WARNING, /* `text` says what went wrong, and does not end the training: metrics can't be written, ... */
    TT_TRAINER_END      /* `text` says why it ended; NULL after an error */
} tt_trainer_event;

/* A report to a display. Borrowed during the call. */
typedef struct tt_trainer_report {
    size_t size; /* sizeof(tt_trainer_report) of the library's version */
    tt_trainer_event event;
    int64_t epoch, epochs;   /* the one under way or just ended, counted from 1; of how many (0: no limit) */
    int64_t step, max_steps; /* optimizer steps since the start of training; 0: no limit */
    int64_t batch, batches;  /* of this epoch: done, and of how many. After its last one the epoch has ended */
    int64_t examples;        /* of this epoch, of all ranks; while it is under way, of this rank */
    double seconds;          /* that these examples took, without evaluation and saving */
    double loss;             /* of the last batch of this rank; NAN: none yet */
    const tt_trainer_metric *train, *eval; /* of what just ended: "loss", then the others by name */
    int64_t train_count, eval_count;       /* 0: none */
    const char *text;
    double waited; /* of EPOCH: the share of the epoch, 0 to 1, in which the rank that waited longest had no batch yet
                      (tt_loader_waited()); else 0 */
} tt_trainer_report;

/* Takes a report, on rank 0. */
typedef void (*tt_trainer_display_fn)(const tt_trainer_report *report, void *user);

/* When a scheduler steps. */
typedef enum tt_trainer_when {
    TT_TRAINER_EACH_EPOCH,
    TT_TRAINER_EACH_STEP,
    TT_TRAINER_EACH_EVALUATION /* by tt_lr_scheduler_step_metric() with the monitored metric */
} tt_trainer_when;

/* Why a run ended. */
typedef enum tt_trainer_reason {
    TT_TRAINER_FINISHED, /* all epochs or steps are done */
    TT_TRAINER_STOPPED,  /* tt_trainer_stop() on some rank */
    TT_TRAINER_SIGNAL,   /* SIGTERM or SIGUSR1 on some rank */
    TT_TRAINER_PATIENCE  /* the monitored metric no longer improved */
} tt_trainer_reason;

typedef struct tt_trainer_result {
    tt_trainer_reason reason;
    int64_t epochs, steps; /* since the start of training */
    double loss;           /* mean of the last whole epoch, of the run before if there was none since; NAN: none */
    double monitored;      /* of the last evaluation, of the run before if there was none since; NAN: none */
    double best;           /* of all evaluations; NAN: none */
    int signal;            /* with .elastic and TT_TRAINER_SIGNAL: which; end with 128 + it. Else 0 */
} tt_trainer_result;

typedef struct tt_trainer_run_args {
    tt_module *model;        /* required: borrowed, not wrapped */
    tt_optimizer *optimizer; /* required: of the model's parameters */
    tt_loader *loader;       /* required: this rank's batches, as many on each rank */
    tt_trainer_step_fn step; /* required */
    TT_OPTIONS;
    void *user; /* handed to `step` and `eval` */
    /* train on all its ranks, by DDP; NULL: alone. The options below are the same on each of them, except for
     * eval_loader, and metrics and display, which only rank 0 uses */
    tt_group *group;
    tt_elastic *elastic; /* in place of .group: survive the loss of ranks: see below */
    tt_sampler *sampler; /* is told each epoch (tt_sampler_set_epoch()); NULL: none needs to be */
    int64_t epochs;      /* end after this many epochs since the start of training; 0: max_steps says when */
    int64_t max_steps;   /* end after at most this many optimizer steps since the start of training; 0: no limit */
    int64_t accumulate;  /* batches whose gradients are averaged for one step; 0 = 1 */
    /* train as this many ranks would, to the bit, on as many as there are or fewer: tt_ddp() has it. The loader's
     * sampler is one of tt_distributed_sampler() with the same number and without .exact, and each step takes
     * .accumulate batches of each of them, one virtual rank's after the other's. 0: not */
    int virtual_ranks;
    size_t bucket_cap_bytes; /* of gradients: tt_ddp() has it; not with .elastic */
    double clip_norm;        /* tt_clip_grad_norm_(); 0: not */
    double clip_value;       /* tt_clip_grad_value_(); 0: not */
    uint64_t step_seed;      /* tt_manual_seed() before each step, from this, the rank and the step's number: what the
                                 model draws (dropout) resumes to the bit. With .virtual_ranks before each one's first
                                 batch of a step, from that virtual rank. 0: the generator is left alone */
    tt_dtype autocast;      /* forward pass and loss, also of evaluations, run under TT_AUTOCAST() of TT_BF16 or TT_F16;
                             TT_F32: not */
    tt_grad_scaler *scaler; /* scales the loss, unscales before clipping; a step that it skips updates no averages and
                               no scheduler of TT_TRAINER_EACH_STEP, but counts. NULL: none */
    bool allow_nonfinite;   /* go on when a loss is infinite or NaN */
    tt_lr_scheduler *scheduler;
    tt_trainer_when scheduler_when;
    tt_ema *ema; /* updated after each step */
    /* evaluation */
    tt_loader *eval_loader;   /* this rank's share; NULL on a rank without one, on all of them: no evaluation */
    tt_trainer_step_fn eval;  /* run in evaluation mode, nothing is recorded; NULL = step */
    int64_t eval_every;       /* epochs; 0 = 1 */
    int64_t eval_every_steps; /* steps between evaluations inside epochs; 0: none */
    const char *monitor;      /* the metric of the evaluation that decides; NULL = "loss" */
    bool monitor_max;         /* more is better */
    int64_t patience;         /* end after this many evaluations in a row without a better one; 0: never */
    /* checkpoints: tt_checkpoint_save() by rank 0 */
    const char *checkpoint;      /* the latest; NULL: none */
    int64_t save_every;          /* epochs, and at the end; 0: at the end alone */
    int64_t save_every_steps;    /* 0: not */
    int64_t keep;                /* also keep this many of the last ones, as NAME-step-N.safetensors; those of later
                                    steps, of a run before, go first; 0: none */
    const char *best_checkpoint; /* of the best evaluation; NULL: none */
    const char *resume;          /* go on from this checkpoint; NULL: begin */
    bool stop_on_signals;        /* SIGTERM and SIGUSR1 end the run after the step under way, with a checkpoint; with
                                    .elastic: tt_elastic_new() has this option */
    /* what people see */
    tt_summary_writer *metrics;    /* train/..., eval/..., train/lr, epoch; NULL: none */
    int64_t log_every;             /* steps between the training's points there; 0 = 50 */
    tt_trainer_display_fn display; /* tt_trainer_console, or one's own; NULL: none */
    void *display_user;
    tt_trainer_result *result; /* receives how it ended, also after an error; NULL: not wanted */
    /* in place of averaging gradients by DDP */
    tt_model_averager *averager; /* of the model's parameters, over .group: is told of each step. NULL: DDP */
    /* called once the model is wrapped for .group, collectively: sets a communication hook (tutti/comm_hooks.h). Its
     * state is part of checkpoints: see below. NULL: none */
    tt_trainer_comm_hook_fn comm_hook;
    bool graph;  /* capture a step of a model on a CUDA device, and replay it: see below */
    char tt_end; /* not an option: see base.h */
} tt_trainer_run_args;

/* Train. Collective over .group; all ranks stop after the same step and return the same, unless one of them fails.
 *
 *   tt_trainer_run(model, sgd, loader, step, .epochs = 5, .group = world, .sampler = sampler, .eval_loader = test,
 *                  .checkpoint = "model.safetensors", .display = tt_trainer_console, .display_user = stdout)
 *
 * A step: for each of its batches `step`, then tt_backward(); gradients are averaged over ranks and batches (once, with
 * the last batch: tt_ddp_set_sync()), clipped, and the optimizer steps. An evaluation begins with rank 0's buffers on
 * all ranks. Evaluations, epochs and logs show means over the examples of all ranks, exactly, however these are shared
 * out. Every epoch, evaluation, log and step costs a few small collectives besides.
 *
 * A checkpoint holds model, optimizer, scheduler, averages, averager, gradient scaler, the loader's state, and how far
 * training is: also the best evaluation, and how many came since. A run that is resumed when .patience has run out, or
 * when all epochs are done, takes no step and reports what the run before did; a larger .patience lets it go on. The
 * best of another .monitor, or of another .monitor_max, can't be compared: then the best, and patience, begin anew, the
 * display gets a TT_TRAINER_WARNING, and the next evaluation is saved as .best_checkpoint.
 *
 * A resumed run takes the steps that the other would have taken, to the bit, for any number of the loader's workers, if
 * what the model draws follows .step_seed and later epochs have the order that they would have had (those of
 * tt_distributed_sampler() do). Inside an epoch it goes on with the next batch, on another number of ranks, too; means
 * of that epoch are those of the rest. On several ranks the loader's state is part of a checkpoint if its order depends
 * on the epoch alone, as that of tt_distributed_sampler() does; rank 0 doesn't know other orders of other ranks. With
 * such an order each rank reads, and drops, the batches that were trained on, also where one rank goes on.
 *
 * With .averager (tutti/local_sgd.h) ranks step on their own, and only the steps that average cost collectives, so all
 * ranks learn only then of a loss that is infinite, or of a wish to stop. Evaluations and checkpoints in between see
 * each rank's own parameters, and rank 0's: let them come with steps that average. A checkpoint has rank 0's optimizer.
 *
 * With .comm_hook a checkpoint also holds what the hooks of tutti/comm_hooks.h remember, of all ranks: rank 0 gathers
 * it, and has memory for it, while it saves, which is then collective (.checkpoint and .best_checkpoint are given on
 * all ranks or on none). On as many ranks a resumed run takes the steps that the other would have taken, to the bit. On
 * another number, what is alike on all ranks goes on (PowerSGD's matrices, step count and draws), and errors that are
 * fed back begin at zero. With a checkpoint that has no hook's state, all begins anew; the state of another hook is
 * TT_ERR_NOT_FOUND; without .comm_hook a state is ignored. A hook of the program's own (tt_ddp_register_comm_hook())
 * has no state there.
 *
 * With .elastic (docs/elastic.md) the trainer registers model, optimizer, scheduler, averages, scaler, loaders and
 * progress, restores, and commits after each step; when a rank is lost, or others join, it recovers and goes on, and
 * tells the display (TT_TRAINER_WARNING). One run for each tt_elastic. Nothing may wait for other ranks before the run,
 * so options are not compared; .loader's sampler is one of tt_distributed_sampler(), and .eval_loader is given on all
 * ranks or on none. Means of an epoch in which a rank was lost are those of the rest of it.
 *
 * With .graph (tutti/graph.h) the model is on a device that has graphs, and `step` and `eval` get each batch there. The
 * first steps are taken as usual. Then a batch's forward and backward pass are captured, and so is the optimizer's step
 * if no scaler decides on it. Later steps replay them: `step` is called again only for batches of another shape, such
 * as an epoch's last. The bits are those without .graph. In `step` there is no tt_item(), no
 * tt_trainer_add_metric(), and nothing else that tt_graph_capture() refuses; clipping, the scaler, averages and
 * schedulers are the trainer's, and work. Not with .group, .elastic or .accumulate above 1.
 *
 * Errors: TT_ERR_INVALID an option, by name; TT_ERR_MISMATCH, on every rank, before the first step: ranks with
 * different numbers of batches, or with different options that decide about steps, evaluations or the frequency of
 * checkpoints, by name; TT_ERR_NOT_FOUND a .monitor that the evaluation does not report, on every rank; TT_ERR_NAN a
 * loss that is infinite or NaN, on every rank, with rank and step; TT_ERR_STATE a checkpoint whose sampler had another
 * seed (tt_checkpoint_progress() tells it), or whose scheduler of TT_TRAINER_EACH_EVALUATION has stepped by another
 * .monitor; and those of all calls that it stands for. Blocks. */
TT_API TT_NODISCARD tt_status tt_trainer_run_with(const tt_trainer_run_args *args, size_t size);
#ifndef __cplusplus
#define tt_trainer_run(model_, optimizer_, loader_, ...)                                           \
    tt_trainer_run_with(TT_ARGS(tt_trainer_run_args, .model = (model_), .optimizer = (optimizer_), \
                                .loader = (loader_), .step = __VA_ARGS__))
#endif
#define TT_TRAINER_RUN_ARGS_INIT TT_ARGS_INIT

/* ---- inside `step` and `eval` */

/* The module to call: the model, in training wrapped for the group. Borrowed; NULL for NULL. */
TT_API tt_module *tt_trainer_model(const tt_trainer *trainer);

/* Add to a metric: `value` is the mean over `examples` examples of this rank. "loss" is added by the trainer.
 *   tt_trainer_add_metric(t, "accuracy", correct / size, size)
 * Errors: TT_ERR_INVALID NULL, a name that is empty or "loss", a number of examples below 0; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_trainer_add_metric(tt_trainer *trainer, const char *name, double value,
                                                    int64_t examples);

/* Completed epochs and optimizer steps since the start of training; 0 for NULL. Is this an evaluation? */
TT_API int64_t tt_trainer_epoch(const tt_trainer *trainer);
TT_API int64_t tt_trainer_steps(const tt_trainer *trainer);
TT_API bool tt_trainer_evaluating(const tt_trainer *trainer);

/* End the run, on all ranks: after the step under way, or, called in an evaluation, when that is done, without another
 * step. The checkpoint is saved. From `step` and `eval` alone, in the thread of tt_trainer_run(). NULL is ignored. */
TT_API void tt_trainer_stop(tt_trainer *trainer);

/* ---- a display */

/* Write a line for each epoch, checkpoint and warning to `file`, a FILE *; on a terminal also a progress bar. For
 * .display, with the FILE * as .display_user. */
TT_API void tt_trainer_console(const tt_trainer_report *report, void *file);

TT_END_DECLS
#endif
