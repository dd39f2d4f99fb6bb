/* A run whose ranks survive the loss of others. All its state is registered. It commits after each step, and after a
 * loss goes on from the last commit, so an evaluation after that step, as at an epoch's end, is done again. */
#include "base/error.h"
#include "data/loader/loader.h"
#include "trainer/run_state.h"

#include <inttypes.h>
#include <stdlib.h>

static const char who[] = "tt_trainer_run";

/* ---- progress, as a part ---- */

static tt_status progress_save(void *user, tt_elastic_writer *writer) {
    tt_trainer *const *t = user;
    if (*t)
        tt_elastic_write(writer, &(*t)->progress, sizeof(*t)->progress);
    return *t ? TT_OK : tt__fail(TT_ERR_STATE, "%s: this run has ended", who);
}

static tt_status progress_load(void *user, const void *data, size_t size) {
    tt_trainer *const *t = user;
    if (!*t || size != sizeof(*t)->progress)
        return tt__fail(TT_ERR_STATE, "%s: %s", who, *t ? "expected a trainer's progress" : "this run has ended");
    memcpy(&(*t)->progress, data, size);
    return TT_OK;
}

/* End the part, which may outlive the run. */
static void progress_forget(void *user) {
    tt_trainer **t = user;
    if (*t)
        (*t)->known_as = NULL;
    free(t);
}

static tt_status add_progress(tt_trainer *t) {
    static const tt_elastic_part_class cls = {.save = progress_save, .load = progress_load, .destroy = progress_forget};
    tt_trainer **known_as = malloc(sizeof *known_as);
    if (!known_as)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", who);
    *known_as = t;
    t->known_as = known_as;
    return tt_elastic_add_part(t->a.elastic, "trainer.progress", &cls, known_as);
}

void tt__trainer_end_elastic(tt_trainer *t) {
    if (t->known_as)
        *t->known_as = NULL;
    t->known_as = NULL;
}

/* ---- the state ---- */

static tt_status add_all(tt_trainer *t) {
    const tt_trainer_run_args *a = &t->a;
    t->ddp = tt_elastic_ddp(a->elastic, "trainer.model", a->model, .virtual_ranks = a->virtual_ranks);
    if (!t->ddp)
        return tt_last_status();
    TT__TRY(tt_elastic_add_optimizer(a->elastic, "trainer.optimizer", a->optimizer));
    if (a->scheduler)
        TT__TRY(tt_elastic_add_lr_scheduler(a->elastic, "trainer.scheduler", a->scheduler));
    if (a->ema)
        TT__TRY(tt_elastic_add_ema(a->elastic, "trainer.ema", a->ema));
    if (a->scaler)
        TT__TRY(tt_elastic_add_grad_scaler(a->elastic, "trainer.scaler", a->scaler));
    TT__TRY(tt_elastic_add_loader(a->elastic, "trainer.loader", a->loader));
    if (a->eval_loader && a->eval_loader->sampler->share)
        TT__TRY(tt_elastic_add_loader(a->elastic, "trainer.eval_loader", a->eval_loader));
    return add_progress(t);
}

/* Restore the state, and update what the run knows of the group and its own place. */
static tt_status take_state(tt_trainer *t) {
    TT__TRY(tt_elastic_restore(t->a.elastic));
    t->a.group = tt_elastic_group(t->a.elastic);
    t->rank = tt_get_rank(t->a.group);
    t->world = tt_get_world_size(t->a.group);
    TT__TRY(tt__trainer_count_batches(t));
    t->goes_on = true;
    t->progress.epoch_step = tt__trainer_steps_done(t);
    t->saved_step = t->evaluated_step = -1;
    t->ended = t->best_due = false;
    t->bad_loss.of = 0;
    tt_loader_restart(t->a.eval_loader);
    tt__means_clear(&t->log_means);
    return TT_OK;
}

tt_status tt__trainer_begin_elastic(tt_trainer *t) {
    TT__TRY(add_all(t));
    return take_state(t);
}

/* ---- steps ---- */

tt_status tt__trainer_commit(tt_trainer *t) {
    int signal;
    if (!t->a.elastic)
        return TT_OK;
    TT__TRY(tt_elastic_commit(t->a.elastic));
    TT__TRY(tt_elastic_should_stop(t->a.elastic, &signal));
    if (signal && !t->ended) {
        t->ended = true;
        t->reason = TT_TRAINER_SIGNAL;
        t->signal = signal;
    }
    return TT_OK;
}

tt_status tt__trainer_recover(tt_trainer *t, tt_status status) {
    char text[400];
    if (!t->a.elastic)
        return status;
    TT__TRY(take_state(t));
    TT__TRY(tt__trainer_purge_metrics(t));
    const tt_elastic_change *now = tt_elastic_changed(t->a.elastic);
    snprintf(text, sizeof text, "%s; round %d goes on after step %" PRId64 " with %d rank%s",
             now && *now->reason ? now->reason : "a rank was lost", now ? now->round : 0, t->progress.step, t->world,
             t->world == 1 ? "" : "s");
    return tt__trainer_tell(t, TT_TRAINER_WARNING, text);
}
