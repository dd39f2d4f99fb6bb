/* A run from its options to its end. */
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/group.h"
#include "data/loader/loader.h"
#include "tensor/device/capture.h"
#include "trainer/run_state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char who[] = "tt_trainer_run";

/* ---- options ---- */

static tt_status check_required(const tt_trainer_run_args *a) {
    const char *missing = !a->model       ? "model"
                          : !a->optimizer ? "optimizer"
                          : !a->loader    ? "loader"
                          : !a->step      ? "step"
                                          : NULL;
    return missing ? tt__fail_argument("%s: `%s` is NULL", who, missing) : TT_OK;
}

static tt_status check_run_numbers(const tt_trainer_run_args *a) {
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"epochs", a->epochs},         {"max_steps", a->max_steps}, {"accumulate", a->accumulate},
        {"eval_every", a->eval_every}, {"patience", a->patience},   {"eval_every_steps", a->eval_every_steps},
        {"save_every", a->save_every}, {"keep", a->keep},           {"save_every_steps", a->save_every_steps},
        {"log_every", a->log_every},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0)
            return tt__fail(TT_ERR_INVALID, "%s: expected .%s of at least 0, got %" PRId64, who, counts[i].name,
                            counts[i].value);
    if (!(a->clip_norm >= 0) || !(a->clip_value >= 0))
        return tt__fail(TT_ERR_INVALID, "%s: expected .clip_norm and .clip_value of at least 0, got %g and %g", who,
                        a->clip_norm, a->clip_value);
    if (a->autocast != TT_F32 && a->autocast != TT_BF16 && a->autocast != TT_F16)
        return tt__fail(TT_ERR_INVALID, "%s: expected .autocast of TT_BF16 or TT_F16, or TT_F32 for none, got %s", who,
                        tt_dtype_name(a->autocast));
    if (a->group && a->elastic)
        return tt__fail(TT_ERR_INVALID, "%s: expected .group or .elastic, which has groups of its own, got both", who);
    if (a->averager && !a->group)
        return tt__fail(TT_ERR_INVALID, "%s: .averager needs .group", who);
    if (a->virtual_ranks < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected .virtual_ranks of at least 0, got %d", who, a->virtual_ranks);
    if (a->virtual_ranks && !a->group && !a->elastic)
        return tt__fail(TT_ERR_INVALID, "%s: .virtual_ranks needs .group or .elastic, if of one rank", who);
    if (a->virtual_ranks && a->averager)
        return tt__fail(TT_ERR_INVALID, "%s: expected .virtual_ranks, which average gradients, or .averager, got both",
                        who);
    if (a->comm_hook && (!a->group || a->averager))
        return tt__fail(TT_ERR_INVALID, "%s: .comm_hook needs .group%s", who,
                        a->averager ? ", and no .averager, which averages in place of gradients" : "");
    if (a->graph && (a->group || a->elastic || a->accumulate > 1))
        return tt__fail(TT_ERR_INVALID, "%s: .graph trains alone, a batch a step: leave out .%s", who,
                        a->group     ? "group"
                        : a->elastic ? "elastic"
                                     : "accumulate");
    if (!a->epochs && !a->max_steps)
        return tt__fail(TT_ERR_INVALID, "%s: expected .epochs or .max_steps, which say when training ends", who);
    if ((unsigned)a->scheduler_when > TT_TRAINER_EACH_EVALUATION)
        return tt__fail(TT_ERR_INVALID, "%s: expected a tt_trainer_when as .scheduler_when, got %d", who,
                        (int)a->scheduler_when);
    return TT_OK;
}

/* Replace options that were not given by their defaults. */
static void resolve_defaults(tt_trainer *t) {
    tt_trainer_run_args *a = &t->a;
    a->accumulate = a->accumulate ? a->accumulate : 1;
    a->eval = a->eval ? a->eval : a->step;
    a->eval_every = a->eval_every ? a->eval_every : 1;
    a->log_every = a->log_every ? a->log_every : 50;
    t->monitor = a->monitor ? a->monitor : "loss";
}

/* Check that options have the other options they need. */
static tt_status check_needs(const tt_trainer *t) {
    const tt_trainer_run_args *a = &t->a;
    const struct {
        bool given;
        const char *name;
    } evals[] = {
        {a->patience > 0, "patience"},
        {a->monitor, "monitor"},
        {a->best_checkpoint, "best_checkpoint"},
        {a->scheduler && a->scheduler_when == TT_TRAINER_EACH_EVALUATION, "scheduler_when"},
    };
    for (size_t i = 0; i < sizeof evals / sizeof *evals && !t->has_eval; i++)
        if (evals[i].given)
            return tt__fail(TT_ERR_INVALID, "%s: .%s needs .eval_loader, on one rank at least", who, evals[i].name);
    bool saves = a->save_every > 0 || a->save_every_steps > 0 || a->keep > 0;
    if (saves && !a->checkpoint)
        return tt__fail(TT_ERR_INVALID, "%s: .save_every, .save_every_steps and .keep need .checkpoint", who);
    return TT_OK;
}

/* ---- beginning ---- */

/* If the model is on a device, batches are copied there while the host goes on. */
static tt_status pin_batches(const tt_trainer *t) {
    const tt_named_tensors *parameters = tt_module_parameters(t->a.model);
    if (!parameters || !parameters->count)
        return TT_OK;
    const tt_device *device = tt_tensor_device(parameters->tensors[0]);
    TT__TRY(tt__loader_pin(t->a.loader, device));
    return tt__loader_pin(t->a.eval_loader, device);
}

static tt_status set_up_run(tt_trainer *t) {
    if (t->a.elastic)
        t->a.group = tt_elastic_group(t->a.elastic);
    t->rank = t->a.group ? tt_get_rank(t->a.group) : 0;
    t->world = t->a.group ? tt_get_world_size(t->a.group) : 1;
    if (t->rank < 0 || t->world < 1)
        return tt__fail(TT_ERR_STATE, "%s: .group has been destroyed, or this process is none of its ranks", who);
    TT__TRY(tt__trainer_count_batches(t));
    if (t->batches < 1)
        return tt__fail(TT_ERR_INVALID, "%s: the loader has no batches", who);
    t->progress.sampler_seed = tt_sampler_seed(t->a.sampler);
    TT__TRY(tt__trainer_check_paths(t));
    TT__TRY(tt__trainer_resume(t));
    TT__TRY(tt__trainer_agree_on_options(t));
    TT__TRY(tt__trainer_find_evaluation(t));
    TT__TRY(check_needs(t));
    if (t->a.elastic) {
        TT__TRY(tt__trainer_begin_elastic(t));
    } else if ((t->world > 1 && !t->a.averager) || t->a.virtual_ranks || t->a.comm_hook) {
        t->ddp = tt_ddp(t->a.model, t->a.group, .virtual_ranks = t->a.virtual_ranks,
                        .bucket_cap_bytes = t->a.bucket_cap_bytes);
        if (!t->ddp)
            return tt_last_status();
        TT__TRY(tt__trainer_set_hook(t));
    }
    TT__TRY(pin_batches(t));
    tt__trainer_end_if_stale(t); /* a resumed run may have used up its patience */
    tt_module_train(t->a.model);
    if (t->a.stop_on_signals)
        tt__stop_signals_begin(&t->signals);
    t->epoch_began_ns = tt__now_ns();
    if (t->a.resume)
        TT__TRY(tt__trainer_purge_metrics(t));
    TT__TRY(tt__trainer_tell(t, TT_TRAINER_BEGIN, t->a.resume));
    return tt__trainer_tell_other_metric(t);
}

/* ---- epochs ---- */

/* Compute an epoch's means, and do all that is due at its end. */
static tt_status end_epoch(tt_trainer *t) {
    t->progress.epoch++;
    t->progress.epoch_step = 0;
    TT__TRY(tt__means_reduce(&t->epoch_means, t->a.group));
    t->progress.loss = tt__means_value(&t->epoch_means, "loss");
    t->waited = tt_loader_waited(t->a.loader);
    if (t->world > 1)
        TT__TRY(tt__group_most(t->a.group, &t->waited, 1, TT_F64, "the trainer's end of an epoch"));
    if (t->a.scheduler && t->a.scheduler_when == TT_TRAINER_EACH_EPOCH)
        TT__TRY(tt_lr_scheduler_step(t->a.scheduler));
    bool last = t->a.epochs > 0 && t->progress.epoch >= t->a.epochs;
    if (tt__is_due(t->progress.epoch, t->a.eval_every) || tt__is_due(t->progress.step, t->a.eval_every_steps) || last)
        TT__TRY(tt__trainer_evaluate(t));
    TT__TRY(tt__trainer_tell(t, TT_TRAINER_EPOCH, NULL));
    TT__TRY(tt__trainer_save_best(t));
    bool save = tt__is_due(t->progress.epoch, t->a.save_every) || tt__is_due(t->progress.step, t->a.save_every_steps);
    return save ? tt__trainer_save(t) : TT_OK;
}

static bool is_finished(const tt_trainer *t) {
    return t->ended || (t->a.epochs > 0 && t->progress.epoch >= t->a.epochs) ||
           (t->a.max_steps > 0 && t->progress.step >= t->a.max_steps);
}

static tt_status train_epochs(tt_trainer *t, int64_t first) {
    while (!is_finished(t)) {
        TT__TRY(tt__trainer_train_epoch(t));
        if (t->batch == t->batches)
            TT__TRY(end_epoch(t));
    }
    t->ended = true;
    /* A run that .max_steps ends inside an epoch is evaluated there. */
    if (t->reason == TT_TRAINER_FINISHED && t->progress.epoch_step > 0 && t->progress.step > first)
        TT__TRY(tt__trainer_evaluate_inside(t));
    return t->progress.step > first ? tt__trainer_save(t) : TT_OK;
}

/* ---- the end ---- */

static void give_result(const tt_trainer *t) {
    if (t->a.result)
        *t->a.result = (tt_trainer_result){t->reason,
                                           t->progress.epoch,
                                           t->progress.step,
                                           t->progress.loss,
                                           t->progress.monitored,
                                           t->progress.evaluations ? t->progress.best : NAN,
                                           t->reason == TT_TRAINER_SIGNAL ? t->signal : 0};
}

static void end_run(tt_trainer *t) {
    if (t->a.virtual_ranks && t->a.loader)
        tt__shard_in_a_row(t->a.loader, 1);
    tt__stop_signals_end(&t->signals);
    tt__trainer_end_elastic(t);
    tt__trainer_graphs_end(t);
    tt_module_free(t->ddp);
    tt__trainer_forget_hook(t);
    tt__means_free(&t->epoch_means);
    tt__means_free(&t->log_means);
    tt__means_free(&t->eval_means);
}

tt_status tt_trainer_run_with(const tt_trainer_run_args *args, size_t size) {
    tt_trainer t = {.progress = TT_PROGRESS_INIT, .saved_step = -1, .evaluated_step = -1};
    TT__ARGS_COPY(t.a, args, size);
    t.last_loss = NAN;
    TT__TRY(check_required(&t.a));
    TT__TRY(check_run_numbers(&t.a));
    resolve_defaults(&t);
    tt_status status = set_up_run(&t);
    const int64_t first = t.progress.step;
    for (bool done = false; !status && !done;) {
        status = train_epochs(&t, first);
        done = !status;
        if (status)
            status = tt__trainer_recover(&t, status);
    }
    if (status)
        t.ended = false;
    tt_status told = tt__trainer_tell(&t, TT_TRAINER_END, NULL);
    give_result(&t);
    end_run(&t);
    return status ? status : told;
}

/* ---- inside the program's functions ---- */

tt_module *tt_trainer_model(const tt_trainer *t) { return !t ? NULL : t->ddp && !t->evaluating ? t->ddp : t->a.model; }

tt_status tt_trainer_add_metric(tt_trainer *t, const char *name, double value, int64_t examples) {
    static const char caller[] = "tt_trainer_add_metric";
    if (!t || !name)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", caller, t ? "name" : "trainer");
    if (!*name || !strcmp(name, "loss"))
        return tt__fail(TT_ERR_INVALID, "%s: expected a name other than \"loss\", which the trainer adds, got \"%s\"",
                        caller, name);
    TT__TRY(tt__capture_refuse(caller, NULL));
    if (examples < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least 0 examples of \"%s\", got %" PRId64, caller, name,
                        examples);
    if (t->evaluating)
        return tt__means_add(&t->eval_means, name, value, (double)examples);
    TT__TRY(tt__means_add(&t->log_means, name, value, (double)examples));
    return tt__means_add(&t->epoch_means, name, value, (double)examples);
}

int64_t tt_trainer_epoch(const tt_trainer *t) { return t ? t->progress.epoch : 0; }
int64_t tt_trainer_steps(const tt_trainer *t) { return t ? t->progress.step : 0; }
bool tt_trainer_evaluating(const tt_trainer *t) { return t && t->evaluating; }

void tt_trainer_stop(tt_trainer *t) {
    if (t)
        t->stop = true;
}
