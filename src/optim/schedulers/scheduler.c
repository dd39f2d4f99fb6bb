/* What all schedulers do: making, stepping, ending, saving and loading. */
#include "optim/schedulers/scheduler.h"

#include "base/error.h"
#include "base/quarantine.h"
#include "optim/dict.h"
#include "tensor/core/named_tensors.h"
#include "tensor/device/capture.h"

#include <math.h>
#include <stdio.h>
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

/* Note the rates before the first scheduler. */
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

/* ---- state as named tensors, and back: fields are listed once, for both ways ---- */

/* One entry: n elements of f64 or i64, where they lie. */
typedef struct lr_field {
    const char *name;
    tt_dtype dtype;
    int64_t n; /* -1: a scalar */
    void *at;
} lr_field;

/* Describe field i; false: there are no more. */
static bool field_at(tt_lr_scheduler *s, int i, lr_field *field) {
    const int numbers = s->cls->numbers, fixed = 3;
    if (i == 0)
        *field = (lr_field){"last_epoch", TT_I64, -1, &s->last_epoch};
    else if (i == 1)
        *field = (lr_field){"base_lrs", TT_F64, (int64_t)s->groups, s->base_lrs};
    else if (i == 2)
        *field = (lr_field){"_last_lr", TT_F64, (int64_t)s->groups, s->last_lr};
    else if (i < fixed + numbers)
        *field = (lr_field){s->cls->number_names[i - fixed], TT_F64, -1, &s->number[i - fixed]};
    else if (i == fixed + numbers && s->cls->milestones_name)
        *field = (lr_field){s->cls->milestones_name, TT_I64, s->milestone_count, s->milestones};
    else
        return false;
    return true;
}

/* The prefix of a scheduler's entries: none, or "_schedulers.I." for a child. */
typedef struct lr_prefix {
    char text[96];
} lr_prefix;

static lr_prefix child_prefix(const lr_prefix *of, size_t i) {
    lr_prefix prefix;
    snprintf(prefix.text, sizeof prefix.text, "%.60s_schedulers.%zu.", of->text, i);
    return prefix;
}

static size_t count_fields(const tt_lr_scheduler *s) {
    size_t n = 3 + (size_t)s->cls->numbers + (s->cls->milestones_name != NULL);
    for (size_t i = 0; i < s->child_count; i++)
        n += count_fields(s->children[i]);
    return n;
}

/* ---- saving ---- */

static tt_status save_fields(tt_lr_scheduler *s, const lr_prefix *prefix, tt__dict *dict) {
    lr_field f;
    for (int i = 0; field_at(s, i, &f); i++)
        TT__TRY(tt__dict_add_own(dict, tt_from_data(f.at, f.n < 0 ? TT_SCALAR : TT_SHAPE(f.n), f.dtype), "%s%s",
                                 prefix->text, f.name));
    for (size_t i = 0; i < s->child_count; i++) {
        lr_prefix of_child = child_prefix(prefix, i);
        TT__TRY(save_fields(s->children[i], &of_child, dict));
    }
    return TT_OK;
}

const tt_named_tensors *tt_lr_scheduler_state_dict(tt_lr_scheduler *scheduler) {
    if (!scheduler)
        return NULL;
    const lr_prefix none = {""};
    tt_status status = tt__dict_init(&scheduler->dict, "tt_lr_scheduler_state_dict", count_fields(scheduler));
    return tt__dict_finish(&scheduler->dict, status ? status : save_fields(scheduler, &none, &scheduler->dict));
}

/* ---- loading ---- */

static const char load_state[] = "tt_lr_scheduler_load_state_dict";

/* Read an entry; one that has more than a scalar only if `vectors`. */
static tt_status load_field(const lr_field *f, const char *name, const tt_named_tensors *state, bool vectors) {
    const tt_tensor *x = tt_named_tensors_find(state, name);
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s\" is missing", load_state, name);
    if (tt_tensor_dtype(x) != f->dtype)
        return tt__fail(TT_ERR_DTYPE, "%s: \"%s\": expected %s, got %s", load_state, name, tt_dtype_name(f->dtype),
                        TT__DESCRIBE(x));
    if (tt_tensor_numel(x) != (f->n < 0 ? 1 : f->n))
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected %lld elements, got %s", load_state, name,
                        (long long)(f->n < 0 ? 1 : f->n), TT__DESCRIBE(x));
    if (!x->contiguous || !tt_tensor_data(x))
        return tt__fail(TT_ERR_INVALID, "%s: \"%s\": expected a contiguous tensor of the host, got %s", load_state,
                        name, TT__DESCRIBE(x));
    if (f->n < 0 || (vectors && f->n))
        memcpy(f->at, tt_tensor_data(x), (size_t)tt_tensor_numel(x) * tt_dtype_size(f->dtype));
    return TT_OK;
}

static tt_status load_fields(tt_lr_scheduler *s, const lr_prefix *prefix, const tt_named_tensors *state, bool vectors) {
    lr_field f;
    for (int i = 0; field_at(s, i, &f); i++) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", prefix->text, f.name);
        TT__TRY(load_field(&f, name, state, vectors));
    }
    return TT_OK;
}

/* Check all entries, on a copy of what they would change. */
static tt_status check_fields(const tt_lr_scheduler *s, const lr_prefix *prefix, const tt_named_tensors *state) {
    tt_lr_scheduler copy = *s;
    TT__TRY(load_fields(&copy, prefix, state, false));
    if (copy.last_epoch < -1 || copy.last_epoch > INT64_C(1) << 53)
        return tt__fail(TT_ERR_INVALID, "%s: \"%slast_epoch\": expected an epoch, got %lld", load_state, prefix->text,
                        (long long)copy.last_epoch);
    if (s->cls->check)
        TT__TRY(s->cls->check(load_state, s->optimizer, copy.number));
    for (size_t i = 0; i < s->child_count; i++) {
        lr_prefix of_child = child_prefix(prefix, i);
        TT__TRY(check_fields(s->children[i], &of_child, state));
    }
    return TT_OK;
}

static tt_status apply_fields(tt_lr_scheduler *s, const lr_prefix *prefix, const tt_named_tensors *state) {
    TT__TRY(load_fields(s, prefix, state, true));
    for (size_t i = 0; i < s->child_count; i++) {
        lr_prefix of_child = child_prefix(prefix, i);
        TT__TRY(apply_fields(s->children[i], &of_child, state));
    }
    return TT_OK;
}

tt_status tt__lr_check_state(const tt_lr_scheduler *s, const tt_named_tensors *state) {
    const int64_t expected = (int64_t)count_fields(s);
    const lr_prefix none = {""};
    TT__TRY(tt__named_tensors_check(load_state, state, true));
    if (state->count != expected)
        return tt__fail(TT_ERR_INVALID, "%s: expected the %lld entries of a %s of %zu groups, got %lld", load_state,
                        (long long)expected, s->cls->name, s->groups, (long long)state->count);
    return check_fields(s, &none, state);
}

tt_status tt_lr_scheduler_load_state_dict(tt_lr_scheduler *scheduler, const tt_named_tensors *state) {
    const lr_prefix none = {""};
    if (!scheduler || !state)
        return tt__fail_argument("%s: the %s is NULL", load_state, scheduler ? "state" : "scheduler");
    TT__TRY(tt__lr_check_state(scheduler, state));
    return apply_fields(scheduler, &none, state);
}
