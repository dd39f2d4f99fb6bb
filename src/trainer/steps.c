/* The steps of an epoch; and evaluations, which decide about the best checkpoint, early stopping and a scheduler's
 * step. */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "checkpoint/entries.h"
#include "data/loader/loader.h"

#include <tutti/job.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- evaluations */

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

/* List all metrics of the evaluation, for an error. */
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

/* Running statistics differ between ranks after a step: all ranks evaluate with rank 0's, which checkpoints hold. */
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
        status = tt__trainer_agree_on_end(t); /* the program may have called tt_trainer_stop() in it */
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

/* ---- steps */

static tt_status add_loss(tt_trainer *t, double loss, int64_t examples) {
    t->last_loss = loss;
    t->epoch_examples += examples;
    TT__TRY(tt__means_add(&t->log_means, "loss", loss, (double)examples));
    return tt__means_add(&t->epoch_means, "loss", loss, (double)examples);
}

/* Forward and backward pass of a batch, one of `parts` of a step or of a virtual rank's share of it. A loss that is not
 * finite is only refused after the step's last backward pass, so that no rank waits long in
 * tt__trainer_agree_on_end(). */
static tt_status train_batch(tt_trainer *t, const tt_batch *b, int64_t parts) {
    TT_AUTO_SCOPE;
    double value;
    if (t->a.graph) {
        TT__TRY(tt__trainer_graph_pass(t, b, &value));
        return add_loss(t, value, b->size);
    }
    tt_tensor *loss = tt__trainer_forward(t, t->a.step, b);
    TT__TRY(tt_item(loss, &value));
    TT__TRY(add_loss(t, value, b->size));
    if (parts > 1)
        loss = tt_scale(loss, 1 / (double)parts);
    return tt_backward(t->a.scaler ? tt_grad_scaler_scale(t->a.scaler, loss) : loss);
}

/* Clip gradients, after a scaler has divided them. */
static tt_status clip(tt_trainer *t) {
    const tt_named_tensors *params = tt_module_parameters(t->a.model);
    if (!(t->a.clip_value > 0 || t->a.clip_norm > 0))
        return TT_OK;
    if (tt_grad_scaler_is_enabled(t->a.scaler)) {
        TT__TRY(tt_grad_scaler_unscale_(t->a.scaler, t->a.optimizer));
        params = tt_optimizer_master_params(t->a.optimizer);
    }
    if (t->a.clip_value > 0)
        TT__TRY(tt_clip_grad_value_(params, t->a.clip_value));
    return t->a.clip_norm > 0 ? tt_clip_grad_norm_(params, t->a.clip_norm) : TT_OK;
}

/* Step the optimizer, unless the scaler finds infinities or NaN. DDP gave all ranks the same gradients, so all of them
 * skip the step. */
static tt_status step_optimizer(tt_trainer *t, bool *skipped) {
    *skipped = false;
    if (!t->a.scaler)
        return t->a.graph ? tt__trainer_graph_step(t) : tt_optimizer_step(t->a.optimizer);
    TT__TRY(tt_grad_scaler_step(t->a.scaler, t->a.optimizer));
    *skipped = tt_grad_scaler_found_inf(t->a.scaler, t->a.optimizer);
    return tt_grad_scaler_update(t->a.scaler);
}

static tt_status update(tt_trainer *t) {
    bool skipped;
    TT__TRY(clip(t));
    TT__TRY(step_optimizer(t, &skipped));
    if (t->a.averager) /* also after a step that this rank skipped, because others did not */
        TT__TRY(tt_model_averager_step(t->a.averager));
    if (skipped)
        return TT_OK;
    if (t->a.ema)
        TT__TRY(tt_ema_update(t->a.ema));
    if (t->a.scheduler && t->a.scheduler_when == TT_TRAINER_EACH_STEP)
        TT__TRY(tt_lr_scheduler_step(t->a.scheduler));
    return TT_OK;
}

/* Return the batches of this epoch's next step: the last one may have fewer. */
static int64_t parts_of_step(const tt_trainer *t) {
    int64_t left = t->batches - t->batch;
    return left < t->parts ? left : t->parts;
}

/* Seed this rank, or its `shard`th virtual rank, so that its draws in this step don't depend on earlier ones.
 * splitmix64's increment keeps seeds apart. */
static void seed_step(const tt_trainer *t, int64_t shard) {
    int ranks = t->world, rank = t->rank;
    if (t->a.virtual_ranks) {
        ranks = t->a.virtual_ranks;
        tt_ddp_shards(t->ddp, &rank);
        rank += (int)shard;
    }
    uint64_t number = (uint64_t)t->progress.step * (uint64_t)ranks + (uint64_t)rank;
    if (t->a.step_seed)
        tt_manual_seed(t->a.step_seed + number * 0x9e3779b97f4a7c15u);
}

static tt_status take_batch(tt_trainer *t, tt_batch *b) {
    int more = tt_loader_next(t->a.loader, b);
    if (more > 0)
        return TT_OK;
    return more < 0 ? tt_last_status()
                    : tt__fail(TT_ERR_STATE,
                               "tt_trainer_run: the loader announced %" PRId64 " batches an epoch, but gave %" PRId64,
                               t->batches, t->batch);
}

/* Note the loss of the step's batch `i`, from 0, if it is the first bad one. */
static void note_bad_loss(tt_trainer *t, int64_t i, int64_t parts) {
    if (!isfinite(t->last_loss) && !t->bad_loss.of)
        t->bad_loss = (tt__bad_loss){t->last_loss, t->progress.step + 1, t->progress.epoch + 1, i + 1, parts};
}

static tt_status trainer_step(tt_trainer *t) {
    tt_batch b;
    int64_t parts = parts_of_step(t), each = parts / t->shards, samples = 0;
    tt_optimizer_zero_grad(t->a.optimizer);
    for (int64_t i = 0; i < parts; i++, t->batch++) {
        if (i % each == 0)
            seed_step(t, i / each);
        TT__TRY(take_batch(t, &b));
        if (t->ddp)
            /* gradients are exchanged once, in a shard's last batch */
            TT__TRY(tt_ddp_set_sync(t->ddp, (i + 1) % each == 0));
        TT__TRY(train_batch(t, &b, each));
        note_bad_loss(t, i, parts);
        samples += b.size;
    }
    TT__TRY(tt__trainer_agree_on_end(t));
    TT__TRY(update(t));
    t->progress.step++;
    t->progress.epoch_step++;
    TT__TRY(tt__trainer_commit(t));
    tt_publish_progress(t->progress.epoch_step, t->last_loss, .steps = t->steps, .epoch = t->progress.epoch + 1,
                        .epochs = t->a.epochs, .samples = samples);
    return tt__trainer_tell_step(t);
}

static tt_status log_steps(tt_trainer *t) {
    if (!tt__is_due(t->progress.step, t->a.log_every))
        return TT_OK;
    TT__TRY(tt__means_reduce(&t->log_means, t->a.group));
    TT__TRY(tt__trainer_write_means(t, "train", &t->log_means));
    tt__means_clear(&t->log_means);
    return tt__trainer_write_rate(t);
}

/* Log, evaluate and save what is due inside an epoch. After the epoch's last step end_epoch() does that. */
static tt_status after_step(tt_trainer *t) {
    TT__TRY(log_steps(t));
    if (t->progress.epoch_step == t->steps)
        return TT_OK;
    if (tt__is_due(t->progress.step, t->a.eval_every_steps))
        TT__TRY(tt__trainer_evaluate_inside(t));
    return tt__is_due(t->progress.step, t->a.save_every_steps) ? tt__trainer_save(t) : TT_OK;
}

/* Move the loader to where the epoch goes on, unless it is there: read the batches that a resumed epoch has trained on,
 * and drop them. */
static tt_status begin_batches(tt_trainer *t) {
    tt_batch b;
    if (t->goes_on) {
        t->goes_on = false;
        t->batch = t->batches - tt_loader_batches_left(t->a.loader);
        return TT_OK;
    }
    tt_loader_restart(t->a.loader);
    for (; t->batch < t->progress.epoch_step * t->parts && t->batch < t->batches; t->batch++)
        TT__TRY(take_batch(t, &b));
    return TT_OK;
}

/* Make the one more call in which the loader ends an epoch. */
static tt_status end_loader(tt_trainer *t) {
    tt_batch b;
    int more = t->batch == t->batches ? tt_loader_next(t->a.loader, &b) : 0;
    return more < 0 ? tt_last_status() : TT_OK;
}

tt_status tt__trainer_train_epoch(tt_trainer *t) {
    t->batch = t->epoch_examples = t->other_ns = 0;
    t->epoch_began_ns = tt__now_ns();
    tt__means_clear(&t->epoch_means);
    if (t->a.sampler)
        tt_sampler_set_epoch(t->a.sampler, t->progress.epoch);
    TT__TRY(begin_batches(t));
    while (t->batch < t->batches && !t->ended) {
        TT__TRY(trainer_step(t));
        TT__TRY(after_step(t));
        if (!t->ended && t->a.max_steps > 0 && t->progress.step >= t->a.max_steps) {
            t->ended = true;
            t->reason = TT_TRAINER_FINISHED;
        }
    }
    return end_loader(t);
}
