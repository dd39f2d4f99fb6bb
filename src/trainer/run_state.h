/* A run of the trainer. Its floors: trainer_run.c > steps.c > evaluation.c > saving.c, trainer_graph.c, agreement.c,
 * trainer_elastic.c > trainer_autocast.c, reports.c, hook_state.c > what is here. */
#ifndef TT_TRAINER_RUN_STATE_H
#define TT_TRAINER_RUN_STATE_H

#include "optim/dict.h"
#include "trainer/means.h"
#include "trainer/stop_signals.h"

#include <tutti/graph.h>

/* The first loss, since the ranks agreed last, that is infinite or not a number. */
typedef struct tt__bad_loss {
    double value;
    int64_t step, epoch; /* counted from 1 */
    int64_t batch, of;   /* of this step's batches, counted from 1; of 0: there is no such loss */
} tt__bad_loss;

/* With .graph: what is captured, and the tensors that it reads and writes. */
typedef struct tt__trainer_graphs {
    tt_graph *pass, *step;   /* NULL: not captured yet */
    tt_tensor *x, *y, *loss; /* on the device; NULL: none yet */
    const tt_batch *batch;   /* of the pass under way */
    int passes;              /* over x and y, before the first capture */
    bool replayed;           /* the last pass was a replay */
} tt__trainer_graphs;

struct tt_trainer {
    tt_trainer_run_args a; /* with defaults resolved */
    const char *monitor;   /* the metric of the evaluation that decides */
    int rank, world;
    tt_module *ddp;               /* the model, wrapped for the group; NULL: alone */
    struct tt_trainer **known_as; /* where .elastic's part knows the run; or NULL */
    tt_progress progress;         /* epoch: completed ones; loss and best: of all ranks */
    int64_t batches;              /* of this rank, in an epoch */
    int64_t steps;                /* in an epoch */
    int64_t shards;               /* virtual ranks of this rank; 1 without */
    int64_t parts;                /* batches a step: .accumulate of each of them */
    bool has_eval;                /* some rank has something to evaluate on */
    bool evaluating;
    bool best_due; /* the last evaluation was the best, and is to be saved */
    bool stop;     /* tt_trainer_stop() was called here */
    tt__bad_loss bad_loss;
    bool ended; /* all ranks agree to end */
    tt_trainer_reason reason;
    int signal; /* of .elastic's ranks */
    tt__stop_signals signals;
    tt__means epoch_means, log_means, eval_means;
    double last_loss;                 /* of this rank */
    double waited;                    /* for batches, in the last whole epoch: the greatest share of all ranks */
    int64_t batch;                    /* of this epoch, done */
    bool same_orders;                 /* the loader's state on rank 0 is that of all ranks, and is saved */
    bool goes_on;                     /* the loader stands where a checkpoint says */
    int64_t epoch_examples;           /* of this rank */
    int64_t epoch_began_ns, other_ns; /* when; what of it was spent evaluating and saving */
    int64_t shown_ns;                 /* when a STEP was reported last */
    int64_t saved_step;               /* step of the latest checkpoint; -1: none */
    int64_t evaluated_step;           /* step of the latest evaluation; -1: none */
    char monitored_before[72];        /* by the run before, if its best is another metric's: "most accuracy" */
    tt__trainer_graphs graphs;        /* with .graph */
    tt__dict hook_state;              /* of the communication hook, while a checkpoint is read or written */
};

/* Is something due that is done at each `every`th number? 0: never. */
static inline bool tt__is_due(int64_t number, int64_t every) { return every > 0 && number % every == 0; }

/* ---- reports.c: what people see */

/* Tell the display of an event; on other ranks than 0 nothing. */
tt_status tt__trainer_tell(tt_trainer *t, tt_trainer_event event, const char *text);

/* Tell it of a step, unless it was told just now. */
tt_status tt__trainer_tell_step(tt_trainer *t);

/* Warn that the best begins anew, if .resume has another metric's. */
tt_status tt__trainer_tell_other_metric(tt_trainer *t);

/* A run that goes on from a checkpoint: what the run before has written of later steps doesn't count. */
tt_status tt__trainer_purge_metrics(tt_trainer *t);

/* Write "KIND/NAME" for each of the means to the metrics. What can't be written is a warning. Rank 0. */
tt_status tt__trainer_write_means(tt_trainer *t, const char *kind, tt__means *means);
tt_status tt__trainer_write_rate(tt_trainer *t);

/* ---- saving.c */

/* Save the latest checkpoint, unless this step has been saved. */
tt_status tt__trainer_save(tt_trainer *t);
tt_status tt__trainer_save_best(tt_trainer *t);

/* Check before the first step that checkpoints can be written, and go on from .resume. */
tt_status tt__trainer_check_paths(const tt_trainer *t);
tt_status tt__trainer_resume(tt_trainer *t);

/* Set batches, steps and parts by the loader. */
tt_status tt__trainer_count_batches(tt_trainer *t);

/* Return the steps done of the epoch under way, whose batches may be cut otherwise than when it was saved. */
int64_t tt__trainer_steps_done(const tt_trainer *t);

/* ---- hook_state.c: the communication hook of .comm_hook */

/* Set it on the wrapper, and give it the state that tt__trainer_keep_hook() has kept. Collective. */
tt_status tt__trainer_set_hook(tt_trainer *t);

/* .load_more of tt_checkpoint_load(), with the trainer as user: keep this rank's state of the hook, of what it
 * loads. */
tt_status tt__trainer_keep_hook(void *t, const tt_named_tensors *more);

/* Gather all ranks' state of the hook on rank 0, where it stays until tt__trainer_forget_hook(). Collective. */
tt_status tt__trainer_gather_hook(tt_trainer *t);

/* What was gathered here; NULL: nothing. */
const tt_named_tensors *tt__trainer_hook_state(tt_trainer *t);
void tt__trainer_forget_hook(tt_trainer *t);

/* ---- trainer_elastic.c: runs with .elastic */

/* Register all that the run's state is, wrap the model, and take the state. */
tt_status tt__trainer_begin_elastic(tt_trainer *t);

/* Commit, and agree on whether to stop. Nothing without .elastic. */
tt_status tt__trainer_commit(tt_trainer *t);

/* After a failure, `status`: go on in another round, at the last commit. Returns `status` where that is not
 * possible. */
tt_status tt__trainer_recover(tt_trainer *t, tt_status status);

/* The run ends: a commit of the program's would find nothing of it. */
void tt__trainer_end_elastic(tt_trainer *t);

/* ---- agreement.c: collective */

/* TT_ERR_MISMATCH: an option, or the number of batches, is not the same on all ranks. Defaults are resolved before. */
tt_status tt__trainer_agree_on_options(const tt_trainer *t);

/* Find out whether some rank has something to evaluate on. */
tt_status tt__trainer_find_evaluation(tt_trainer *t);

/* Tell all ranks whether some rank has a bad loss, which is TT_ERR_NAN on each of them, and whether one wants to stop;
 * with .averager at the next step that averages. */
tt_status tt__trainer_agree_on_end(tt_trainer *t);

/* ---- trainer_autocast.c */

/* Call a program's function under .autocast. */
tt_tensor *tt__trainer_forward(tt_trainer *t, tt_trainer_step_fn step, const tt_batch *batch);

/* ---- trainer_graph.c: runs with .graph */

/* Forward and backward pass of a batch, whose loss is read. */
tt_status tt__trainer_graph_pass(tt_trainer *t, const tt_batch *batch, double *loss);

/* The optimizer's step after it. */
tt_status tt__trainer_graph_step(tt_trainer *t);

/* Put a batch on the model's device, for the length of the open scope. Without .graph it stays where it is. */
tt_status tt__trainer_place_batch(const tt_trainer *t, tt_batch *batch);

void tt__trainer_graphs_end(tt_trainer *t);

/* ---- evaluation.c */

/* Evaluate, and judge by it: the best, patience, a scheduler, whether to go on. Collective. */
tt_status tt__trainer_evaluate(tt_trainer *t);

/* Has .patience run out? Then the run ends. */
void tt__trainer_end_if_stale(tt_trainer *t);

/* Evaluate inside an epoch, unless this step has been evaluated; tell it, and save the best. Collective. */
tt_status tt__trainer_evaluate_inside(tt_trainer *t);

/* ---- steps.c */

/* Take the steps of the epoch under way, from progress.epoch_step on; t->ended: not all of them. */
tt_status tt__trainer_train_epoch(tt_trainer *t);

#endif
