/* The steps of an epoch. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "data/loader/loader.h"
#include "trainer/run_state.h"

#include <inttypes.h>
#include <math.h>
#include <tutti/job.h>

static tt_status add_loss(tt_trainer *t, double loss, int64_t examples) {
    t->last_loss = loss;
    t->epoch_examples += examples;
    TT__TRY(tt__means_add(&t->log_means, "loss", loss, (double)examples));
    return tt__means_add(&t->epoch_means, "loss", loss, (double)examples);
}

/* Forward and backward of a batch, one of `parts` of a step, or of a virtual rank's share of it. The loss is looked at
 * when all ranks have come through backward: nobody waits for long in tt__trainer_agree_on_end(). */
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

/* Clip gradients as they will be used: a scaler divides them first. */
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

/* Step the optimizer, unless the scaler finds infinities or NaN: DDP gave all ranks the same gradients, and so all of
 * them skip it. */
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
    if (t->a.averager) /* also after a step that this rank has skipped: others have not */
        TT__TRY(tt_model_averager_step(t->a.averager));
    if (skipped)
        return TT_OK;
    if (t->a.ema)
        TT__TRY(tt_ema_update(t->a.ema));
    if (t->a.scheduler && t->a.scheduler_when == TT_TRAINER_EACH_STEP)
        TT__TRY(tt_lr_scheduler_step(t->a.scheduler));
    return TT_OK;
}

/* Batches of this epoch's next step: the last one may have fewer. */
static int64_t parts_of_step(const tt_trainer *t) {
    int64_t left = t->batches - t->batch;
    return left < t->parts ? left : t->parts;
}

/* Draw the same in this step on this rank, or virtual rank (the `shard`th of this rank), whatever was drawn before
 * (splitmix64's increments keep seeds apart). */
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

/* Note the first bad loss, of the step's `i`th batch. */
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
            TT__TRY(tt_ddp_set_sync(t->ddp, (i + 1) % each == 0)); /* one exchange a step; with it a shard ends */
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

/* What is due inside an epoch. Its last step is followed by what is due at its end. */
static tt_status after_step(tt_trainer *t) {
    TT__TRY(log_steps(t));
    if (t->progress.epoch_step == t->steps)
        return TT_OK;
    if (tt__is_due(t->progress.step, t->a.eval_every_steps))
        TT__TRY(tt__trainer_evaluate_inside(t));
    return tt__is_due(t->progress.step, t->a.save_every_steps) ? tt__trainer_save(t) : TT_OK;
}

/* Stand where the epoch under way is to go on: where the loader was put, or else behind the batches that a resumed
 * epoch has trained on, which are read over. */
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

/* The loader's end of an epoch is a call of its own. */
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
