/* What all schedulers do: making, stepping, ending. */
#include "optim/schedulers/scheduler.h"

#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/device/capture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- learning rates ---- */

void tt__lr_set(tt_lr_scheduler *s, size_t g, double lr) {
    s->optimizer->groups[g].option[tt__optim_option_index(s->optimizer->cls, "lr")] = lr;
}

double tt__lr_get(const tt_lr_scheduler *s, size_t g) {
    return s->optimizer->groups[g].option[tt__optim_option_index(s->optimizer->cls, "lr")];
}

void tt__lr_note(tt_lr_scheduler *s) {
    for (size_t g = 0; g < s->groups; g++)
        s->last_lr[g] = tt__lr_get(s, g);
}

tt_status tt__lr_step_rates(tt_lr_scheduler *s, bool again) {
    int64_t before = s->last_epoch;
    s->last_epoch = again ? 0 : before + 1;
    for (size_t g = 0; g < s->groups; g++) {
        s->next[g] = again && s->cls->first_rate ? s->cls->first_rate(s, g) : s->cls->rate(s, g, tt__lr_get(s, g));
        if (isfinite(s->next[g]))
            continue;
        tt_status status = tt__fail(TT_ERR_INVALID,
                                    "tt_lr_scheduler_step: %s: expected a finite lr of group %zu in epoch %lld, got %g",
                                    s->cls->name, g, (long long)s->last_epoch, s->next[g]);
        s->last_epoch = before;
        return status;
    }
    for (size_t g = 0; g < s->groups; g++)
        tt__lr_set(s, g, s->next[g] < 0 ? 0 : s->next[g]); /* no optimizer takes a negative one */
    tt__lr_note(s);
    return TT_OK;
}

tt_status tt__lr_step(tt_lr_scheduler *s, bool again) {
    return s->cls->step ? s->cls->step(s, again) : tt__lr_step_rates(s, again);
}

/* ---- making ---- */

/* Note what rates there are before the first scheduler. */
static void note_initial_lrs(tt_lr_scheduler *s) {
    for (size_t g = 0; g < s->groups; g++) {
        tt__optim_group *group = &s->optimizer->groups[g];
        if (!group->scheduled)
            group->initial_lr = tt__lr_get(s, g);
        group->scheduled = true;
        s->base_lrs[g] = group->initial_lr;
    }
}

tt_lr_scheduler *tt__lr_new(const tt__lr_class *cls, tt_optimizer *optimizer, const double *number) {
    if (!optimizer) {
        tt__fail_argument("%s: the optimizer is NULL", cls->name);
        return NULL;
    }
    if (cls->check && cls->check(cls->name, optimizer, number))
        return NULL;
    tt_lr_scheduler *s = calloc(1, sizeof *s);
    double *rates = calloc(3 * optimizer->group_count, sizeof *rates);
    if (!s || !rates) {
        free(s);
        free(rates);
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a scheduler of %zu groups", cls->name,
                             optimizer->group_count);
    }
    s->cls = cls;
    s->optimizer = optimizer;
    s->last_epoch = -1;
    s->groups = optimizer->group_count;
    s->base_lrs = rates;
    s->last_lr = rates + s->groups;
    s->next = s->last_lr + s->groups;
    if (number)
        memcpy(s->number, number, (size_t)cls->numbers * sizeof *number);
    note_initial_lrs(s);
    return s;
}

tt_lr_scheduler *tt__lr_begin(tt_lr_scheduler *s) {
    if (!s || !tt__lr_step(s, false))
        return s;
    tt_lr_scheduler_free(s);
    return NULL;
}

tt_status tt__lr_take_milestones(tt_lr_scheduler *s, const int64_t *milestones, int64_t n) {
    const char *who = s->cls->name;
    if (n < 0 || (n && !milestones))
        return tt__fail(TT_ERR_INVALID, "%s: expected a list of milestones, got %s of %lld", who,
                        milestones ? "one" : "NULL", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (milestones[i] < 1 || (i && milestones[i] < milestones[i - 1]))
            return tt__fail(TT_ERR_INVALID, "%s: expected rising milestones of at least 1, got %lld at place %lld", who,
                            (long long)milestones[i], (long long)i);
    s->milestones = calloc((size_t)n + 1, sizeof *milestones);
    if (!s->milestones)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld milestones", who, (long long)n);
    if (n)
        memcpy(s->milestones, milestones, (size_t)n * sizeof *milestones);
    s->milestone_count = n;
    return TT_OK;
}

tt_status tt__lr_check_least(const char *who, const char *name, double value) {
    return tt__optim_check_number(who, name, value, 0);
}

tt_status tt__lr_check_above(const char *who, const char *name, double value) {
    if (isfinite(value) && value > 0)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected a finite %s above 0, got %g", who, name, value);
}

tt_status tt__lr_check_count(const char *who, const char *name, double value, int least) {
    if (value >= least && value <= 0x1p53 && value == floor(value))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected a whole %s of at least %d, got %g", who, name, least, value);
}

/* ---- public calls ---- */

tt_status tt_lr_scheduler_step(tt_lr_scheduler *scheduler) {
    static const char who[] = "tt_lr_scheduler_step";
    if (!scheduler)
        return tt__fail(TT_ERR_INVALID, "%s: the scheduler is NULL", who);
    if (scheduler->cls->step_metric)
        return tt__fail(TT_ERR_INVALID, "%s: %s needs a metric: call tt_lr_scheduler_step_metric()", who,
                        scheduler->cls->name);
    TT__TRY(tt__capture_refuse(who, NULL));
    return tt__lr_step(scheduler, false);
}

tt_status tt_lr_scheduler_step_metric(tt_lr_scheduler *scheduler, double metric) {
    static const char who[] = "tt_lr_scheduler_step_metric";
    if (!scheduler)
        return tt__fail(TT_ERR_INVALID, "%s: the scheduler is NULL", who);
    if (!scheduler->cls->step_metric)
        return tt__fail(TT_ERR_INVALID, "%s: %s takes no metric: call tt_lr_scheduler_step()", who,
                        scheduler->cls->name);
    TT__TRY(tt__capture_refuse(who, NULL));
    return scheduler->cls->step_metric(scheduler, metric);
}

tt_status tt_lr_scheduler_last_lr(const tt_lr_scheduler *scheduler, int64_t group, double *lr) {
    static const char who[] = "tt_lr_scheduler_last_lr";
    if (!scheduler || !lr)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", who, scheduler ? "lr" : "scheduler");
    if (group < 0 || group >= (int64_t)scheduler->groups)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: expected a group below %zu, got %lld", who, scheduler->groups,
                        (long long)group);
    *lr = scheduler->last_lr[group];
    return TT_OK;
}

int64_t tt_lr_scheduler_last_epoch(const tt_lr_scheduler *scheduler) { return scheduler ? scheduler->last_epoch : 0; }

static void scheduler_end(tt_lr_scheduler *s) {
    for (size_t i = 0; i < s->child_count; i++)
        tt_lr_scheduler_free(s->children[i]);
    tt__dict_free(&s->dict);
    free(s->children);
    free(s->milestones);
    free(s->base_lrs);
    tt__quarantine(s, sizeof *s, free);
}

void tt_lr_scheduler_free(tt_lr_scheduler *scheduler) {
    if (scheduler && !tt__freed_before("tt_lr_scheduler_free", scheduler))
        scheduler_end(scheduler);
}
