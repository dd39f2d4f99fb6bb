/* Evaluation, and what follows from it: the best checkpoint, early stopping, a scheduler's step. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "checkpoint/entries.h"
#include "trainer/run_state.h"

#include <float.h>
#include <math.h>
#include <string.h>

static tt_status evaluate_batch(tt_trainer *t, const tt_batch *b) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    double loss;
    tt_batch placed = *b;
    TT__TRY(tt__trainer_place_batch(t, &placed));
    TT__TRY(tt_item(tt__trainer_forward(t, t->a.eval, &placed), &loss));
    return tt__means_add(&t->eval_means, "loss", loss, (double)b->size);
}

static tt_status evaluate_share(tt_trainer *t) {
    tt_batch b;
    int more = 0;
    while (t->a.eval_loader && (more = tt_loader_next(t->a.eval_loader, &b)) > 0)
        TT__TRY(evaluate_batch(t, &b));
    return more < 0 ? tt_last_status() : TT_OK;
}

/* All metrics of the evaluation, for an error. */
static const char *list_means(const tt__means *means, char *text, size_t size) {
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < means->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", i ? ", " : "", means->of[i].name);
    return text;
}

static bool is_best(const tt_trainer *t, double value) {
    if (!isfinite(value))
        return false;
    return t->a.monitor_max ? value > t->progress.best : value < t->progress.best;
}

void tt__trainer_end_if_stale(tt_trainer *t) {
    if (t->a.patience > 0 && t->progress.stale >= t->a.patience) {
        t->ended = true;
        t->reason = TT_TRAINER_PATIENCE;
    }
}

/* Judge by the monitored metric, which is the same on all ranks. */
static tt_status judge(tt_trainer *t) {
    char names[512];
    if (!tt__means_examples(&t->eval_means, t->monitor))
        return tt__fail(TT_ERR_NOT_FOUND, "tt_trainer_run: .monitor is \"%s\", but the evaluation has %s", t->monitor,
                        list_means(&t->eval_means, names, sizeof names));
    t->progress.monitored = tt__means_value(&t->eval_means, t->monitor);
    if (!t->progress.evaluations++) {
        t->progress.best = t->a.monitor_max ? -DBL_MAX : DBL_MAX;
        t->progress.monitor_max = t->a.monitor_max;
        tt__copy_metric_name(t->progress.monitor, t->monitor);
    }
    bool better = is_best(t, t->progress.monitored);
    t->progress.stale = better ? 0 : t->progress.stale + 1;
    t->best_due = better;
    if (better)
        t->progress.best = t->progress.monitored;
    tt__trainer_end_if_stale(t);
    if (t->a.scheduler && t->a.scheduler_when == TT_TRAINER_EACH_EVALUATION)
        return tt_lr_scheduler_step_metric(t->a.scheduler, t->progress.monitored);
    return TT_OK;
}

/* Running statistics are each rank's own after a step: all ranks evaluate rank 0's, which checkpoints hold. */
static tt_status share_buffers(const tt_trainer *t) {
    const tt_named_tensors *buffers = tt_module_buffers(t->a.model);
    if (!buffers)
        return tt_last_status();
    for (int64_t i = 0; t->ddp && i < buffers->count; i++)
        TT__TRY(tt_tensor_broadcast_with(TT_ARGS(tt_tensor_broadcast_args, .group = t->a.group,
                                                 .x = buffers->tensors[i], .file = "the trainer's evaluation")));
    return TT_OK;
}

tt_status tt__trainer_evaluate(tt_trainer *t) {
    if (!t->has_eval || t->evaluated_step == t->progress.step)
        return TT_OK;
    int64_t began = tt__now_ns();
    tt__means_clear(&t->eval_means);
    TT__TRY(share_buffers(t));
    t->evaluating = true;
    tt_module_eval(t->a.model);
    tt_status status = evaluate_share(t);
    tt_module_train(t->a.model);
    t->evaluating = false;
    TT__TRY(status);
    TT__TRY(tt__means_reduce(&t->eval_means, t->a.group));
    t->evaluated_step = t->progress.step;
    TT__TRY(tt__trainer_write_means(t, "eval", &t->eval_means));
    status = judge(t);
    if (!status)
        status = tt__trainer_agree_on_end(t); /* a program may have stopped here */
    t->other_ns += tt__now_ns() - began;
    return status;
}

tt_status tt__trainer_evaluate_inside(tt_trainer *t) {
    if (t->evaluated_step == t->progress.step)
        return TT_OK;
    TT__TRY(tt__trainer_evaluate(t));
    if (t->has_eval)
        TT__TRY(tt__trainer_tell(t, TT_TRAINER_EVALUATED, NULL));
    return tt__trainer_save_best(t);
}
