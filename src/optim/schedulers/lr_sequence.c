/* SequentialLR: one scheduler after the other. ChainedScheduler: all of them in every step. */
#include "base/error.h"
#include "optim/schedulers/scheduler.h"

#include <stdlib.h>
#include <string.h>

/* Is schedulers[i] among those before it? */
static bool is_repeated(tt_lr_scheduler *const *schedulers, int64_t i) {
    for (int64_t j = 0; j < i; j++)
        if (schedulers[j] == schedulers[i])
            return true;
    return false;
}

/* A larger count can only be a mistake, such as a pointer in its place. */
enum { MOST_CHILDREN = 64 };

static void free_schedulers(tt_lr_scheduler *const *schedulers, int64_t n) {
    for (int64_t i = n - 1; schedulers && n <= MOST_CHILDREN && i >= 0; i--)
        if (!is_repeated(schedulers, i))
            tt_lr_scheduler_free(schedulers[i]);
}

static tt_status check_schedulers(const char *who, tt_lr_scheduler *const *schedulers, int64_t n, bool may_nest) {
    if (n < 1 || n > MOST_CHILDREN || !schedulers)
        return tt__fail(TT_ERR_INVALID, "%s: expected a list of 1 to %d schedulers, got %s of %lld", who, MOST_CHILDREN,
                        schedulers ? "one" : "NULL", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const tt_lr_scheduler *s = schedulers[i];
        if (!s)
            return tt__fail_argument("%s: scheduler %lld is NULL", who, (long long)i);
        if (s->cls->step_metric || (s->child_count && !may_nest))
            return tt__fail(TT_ERR_INVALID, "%s: scheduler %lld is a %s, which can't be part of it", who, (long long)i,
                            s->cls->name);
        if (is_repeated(schedulers, i))
            return tt__fail(TT_ERR_INVALID, "%s: scheduler %lld comes twice", who, (long long)i);
        if (s->optimizer != schedulers[0]->optimizer)
            return tt__fail(TT_ERR_INVALID, "%s: expected schedulers of one optimizer, got another one at place %lld",
                            who, (long long)i);
    }
    return TT_OK;
}

static tt_status take_children(tt_lr_scheduler *s, tt_lr_scheduler *const *schedulers, int64_t n) {
    s->children = calloc((size_t)n, sizeof *s->children);
    if (!s->children)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld schedulers", s->cls->name, (long long)n);
    memcpy(s->children, schedulers, (size_t)n * sizeof *s->children);
    s->child_count = (size_t)n;
    return TT_OK;
}

/* ---- SequentialLR ---- */

static tt_status sequential_step(tt_lr_scheduler *s, bool again) {
    (void)again; /* a sequence is never a child */
    int64_t i = 0;
    while (i < s->milestone_count && s->milestones[i] <= s->last_epoch + 1)
        i++;
    bool begins = i > 0 && s->milestones[i - 1] == s->last_epoch + 1;
    TT__TRY(tt__lr_step(s->children[i], begins));
    s->last_epoch++;
    tt__lr_note(s);
    return TT_OK;
}

static const tt__lr_class sequential_class = {
    .name = "tt_sequential_lr", .milestones_name = "_milestones", .step = sequential_step};

/* Begin as if the first scheduler alone had been made. */
static tt_status sequential_begin(tt_lr_scheduler *s) {
    for (size_t g = 0; g < s->groups; g++)
        tt__lr_set(s, g, s->base_lrs[g]);
    for (size_t i = 0; i < s->child_count; i++)
        s->children[i]->last_epoch--;
    TT__TRY(tt__lr_step(s->children[0], false));
    s->last_epoch = 0;
    tt__lr_note(s);
    return TT_OK;
}

static tt_status sequential_fill(tt_lr_scheduler *s, tt_lr_scheduler *const *schedulers, int64_t n,
                                 const int64_t *milestones) {
    TT__TRY(tt__lr_take_milestones(s, milestones, n - 1));
    TT__TRY(take_children(s, schedulers, n));
    return sequential_begin(s);
}

tt_lr_scheduler *tt_sequential_lr(tt_lr_scheduler *const *schedulers, int64_t n, const int64_t *milestones) {
    tt_lr_scheduler *s = NULL;
    if (!check_schedulers(sequential_class.name, schedulers, n, false))
        s = tt__lr_new(&sequential_class, schedulers[0]->optimizer, NULL);
    if (s && !sequential_fill(s, schedulers, n, milestones))
        return s;
    if (!s || !s->child_count)
        free_schedulers(schedulers, n);
    tt_lr_scheduler_free(s);
    return NULL;
}

/* ---- ChainedScheduler ---- */

static tt_status chained_step(tt_lr_scheduler *s, bool again) {
    (void)again; /* a chain is never a child of a sequence */
    for (size_t i = 0; i < s->child_count; i++)
        TT__TRY(tt__lr_step(s->children[i], false));
    s->last_epoch++;
    tt__lr_note(s);
    return TT_OK;
}

static const tt__lr_class chained_class = {.name = "tt_chained_scheduler", .step = chained_step};

tt_lr_scheduler *tt_chained_scheduler(tt_lr_scheduler *const *schedulers, int64_t n) {
    tt_lr_scheduler *s = NULL;
    if (!check_schedulers(chained_class.name, schedulers, n, true))
        s = tt__lr_new(&chained_class, schedulers[0]->optimizer, NULL);
    if (!s || take_children(s, schedulers, n)) {
        free_schedulers(schedulers, n);
        tt_lr_scheduler_free(s);
        return NULL;
    }
    s->last_epoch = 0;
    tt__lr_note(s);
    return s;
}
