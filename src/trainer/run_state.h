/* A run of the trainer. Its floors: trainer_run.c > steps.c > trainer_elastic.c > saving.c, trainer_graph.c,
 * agreement.c > reports.c > means.c. */
#ifndef TT_TRAINER_RUN_STATE_H
#define TT_TRAINER_RUN_STATE_H

#include "optim/dict.h"
#include "trainer/means.h"

#include <tutti/graph.h>

#include <signal.h>

/* While SIGTERM and SIGUSR1 are taken as wishes to stop: the program's own actions for them. Zeroed: not watching. */
typedef struct tt__stop_signals {
    bool watching;
    struct sigaction term, usr1;
} tt__stop_signals;

/* The first loss since the ranks last agreed that is infinite or not a number. */
typedef struct tt__bad_loss {
    double value;
    int64_t step, epoch; /* counted from 1 */
    /* number of the batch in its step, counted from 1; batches of the step, or 0: there is no such loss */
    int64_t batch, of;
} tt__bad_loss;

/* With .graph: the captured graphs, and the tensors that they read and write. */
typedef struct tt__trainer_graphs {
    tt_graph *pass, *step;   /* NULL: not captured yet */
    tt_tensor *x, *y, *loss; /* on the device; NULL: none yet */
    const tt_batch *batch;   /* of the pass under way */
    int passes;              /* how many ran before the first capture */
    bool replayed;           /* the last pass was a replay */
} tt__trainer_graphs;

struct tt_trainer {
    tt_trainer_run_args a; /* with defaults resolved */
    const char *monitor;   /* name of the evaluation's metric that decides */
    int rank, world;
    tt_module *ddp;               /* the model, wrapped for the group; NULL: alone */
    struct tt_trainer **known_as; /* the pointer by which .elastic's part finds the run; or NULL */
    tt_progress progress;         /* epoch: completed ones; loss and best: of all ranks */
    int64_t batches;              /* of this rank, in an epoch */
    int64_t steps;                /* in an epoch */
    int64_t shards;               /* virtual ranks of this rank; 1 without .virtual_ranks */
    int64_t parts;                /* batches a step: .accumulate of each shard */
    bool has_eval;                /* some rank has something to evaluate on */
    bool evaluating;
    bool best_due; /* the last evaluation was the best and has not been saved */
    bool stop;     /* tt_trainer_stop() was called here */
    tt__bad_loss bad_loss;
    bool ended; /* all ranks agree to end */
    tt_trainer_reason reason;
    int signal; /* the signal that .elastic's ranks agree on */
    tt__stop_signals signals;
    tt__means epoch_means, log_means, eval_means;
    double last_loss;                 /* of this rank */
    double waited;                    /* greatest share of the last whole epoch that a rank waited for batches */
    int64_t batch;                    /* how many of this epoch are done */
    bool same_orders;                 /* all ranks have the loader's state of rank 0, which is saved */
    bool goes_on;                     /* the loader stands already where the epoch goes on */
    int64_t epoch_examples;           /* of this rank */
    int64_t epoch_began_ns, other_ns; /* other_ns: how long the epoch has evaluated and saved */
    int64_t shown_ns;                 /* when a STEP was last reported */
    int64_t saved_step;               /* step of the latest checkpoint; -1: none */
    int64_t evaluated_step;           /* step of the latest evaluation; -1: none */
    char monitored_before[72];        /* the metric of the run before, if it is another one: "most accuracy" */
    tt__trainer_graphs graphs;        /* with .graph */
    tt__dict hook_state;              /* of the communication hook, while a checkpoint is read or written */
};

/* Is something due that is done at every `every`th number? every 0: never. */
static inline bool tt__is_due(int64_t number, int64_t every) { return every > 0 && number % every == 0; }

/* ---- reports.c: display and metrics */

/* Tell the display of an event. Does nothing on ranks other than 0. */
tt_status tt__trainer_tell(tt_trainer *t, tt_trainer_event event, const char *text);

/* Report a step to the display, unless one was reported just now. */
tt_status tt__trainer_tell_step(tt_trainer *t);

/* Warn that the best begins anew, if that of .resume is of another metric. */
tt_status tt__trainer_tell_other_metric(tt_trainer *t);

/* When going on from a checkpoint: remove the metrics that the run before wrote for later steps. */
tt_status tt__trainer_purge_metrics(tt_trainer *t);

/* Write "KIND/NAME" for each of the means to the metrics, on rank 0. A failure becomes a warning. */
tt_status tt__trainer_write_means(tt_trainer *t, const char *kind, tt__means *means);
tt_status tt__trainer_write_rate(tt_trainer *t);

/* ---- saving.c */

/* Save the latest checkpoint, unless this step has been saved. */
tt_status tt__trainer_save(tt_trainer *t);
tt_status tt__trainer_save_best(tt_trainer *t);

/* Set the communication hook of .comm_hook on the wrapper, with the state that a resumed checkpoint holds.
 * Collective. */
tt_status tt__trainer_set_hook(tt_trainer *t);
void tt__trainer_forget_hook(tt_trainer *t);

/* Check before the first step that checkpoints can be written, and go on from .resume. */
tt_status tt__trainer_check_paths(const tt_trainer *t);
tt_status tt__trainer_resume(tt_trainer *t);

/* Set batches, steps and parts by the loader. */
tt_status tt__trainer_count_batches(tt_trainer *t);

/* Return the steps done of the epoch under way. Its batches may be divided otherwise than when it was saved. */
int64_t tt__trainer_steps_done(const tt_trainer *t);

/* ---- trainer_elastic.c: runs with .elastic */

/* Register all state of the run, wrap the model, and take the state. */
tt_status tt__trainer_begin_elastic(tt_trainer *t);

/* Commit, and agree on whether to stop. Does nothing without .elastic. */
tt_status tt__trainer_commit(tt_trainer *t);

/* After the failure `status`, go on in another round, at the last commit. Returns `status` if that is not possible. */
tt_status tt__trainer_recover(tt_trainer *t, tt_status status);

/* End the run: a later commit of the program fails. */
void tt__trainer_end_elastic(tt_trainer *t);

/* ---- agreement.c: collective, except for the first two */

/* Note SIGTERM and SIGUSR1, instead of what the program did with them, until tt__stop_signals_end(). */
void tt__stop_signals_begin(tt__stop_signals *signals);
void tt__stop_signals_end(tt__stop_signals *signals);

/* Check that all ranks have the same options and number of batches, else TT_ERR_MISMATCH. Defaults are resolved
 * before. */
tt_status tt__trainer_agree_on_options(const tt_trainer *t);

/* Find out whether some rank has something to evaluate on. */
tt_status tt__trainer_find_evaluation(tt_trainer *t);

/* Tell all ranks whether some rank has a bad loss, which is TT_ERR_NAN on each of them, and whether one wants to stop.
 * With .averager this happens at the next step that averages. */
tt_status tt__trainer_agree_on_end(tt_trainer *t);

/* ---- trainer_graph.c: passes, and runs with .graph */

/* Call a program's function under .autocast. */
tt_tensor *tt__trainer_forward(tt_trainer *t, tt_trainer_step_fn step, const tt_batch *batch);

/* Forward and backward pass of a batch, whose loss is read. */
tt_status tt__trainer_graph_pass(tt_trainer *t, const tt_batch *batch, double *loss);

/* The optimizer's step after the pass. */
tt_status tt__trainer_graph_step(tt_trainer *t);

/* With .graph, put a batch on the model's device. The copy belongs to the open scope. */
tt_status tt__trainer_place_batch(const tt_trainer *t, tt_batch *batch);

void tt__trainer_graphs_end(tt_trainer *t);

/* ---- steps.c: evaluations, and the steps of an epoch */

/* Evaluate, and judge by it: the best, patience, a scheduler, whether to go on. Collective. */
tt_status tt__trainer_evaluate(tt_trainer *t);

/* End the run if .patience has run out. */
void tt__trainer_end_if_stale(tt_trainer *t);

/* Evaluate inside an epoch, unless this step has been evaluated; report the result, and save the best. Collective. */
tt_status tt__trainer_evaluate_inside(tt_trainer *t);

/* Take the steps of the epoch under way, from progress.epoch_step on, until t->ended. */
tt_status tt__trainer_train_epoch(tt_trainer *t);

#endif
