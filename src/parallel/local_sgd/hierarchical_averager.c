/* Hierarchical averaging: neighbours average often, larger groups of ranks less often, all ranks least often.
 *
 * T. Lin, S. Stich, K. Patel, M. Jaggi: Don't Use Large Mini-Batches, Use Local SGD. ICLR 2020 (its hierarchical local
 * SGD). J. Wang, S. Wang, R. Chen, M. Ji: Demystifying Why Local Aggregation Helps: Convergence Analysis of
 * Hierarchical SGD. AAAI 2022. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/args.h"
#include "base/error.h"
#include "parallel/local_sgd/averager.h"

enum { LEVELS_MAX = 16 };

typedef struct level {
    int64_t period;
    tt_group *group; /* owned, except the group of all ranks */
} level;

typedef struct hierarchical {
    tt_model_averager base;
    int64_t warmup_steps;
    int count;
    level levels[LEVELS_MAX]; /* periods and sizes rise */
} hierarchical;

/* The group of the largest level whose period divides the step's number; or NULL. */
static tt_group *group_due(const hierarchical *h) {
    for (int i = h->count; i-- > 0 && h->base.steps >= h->warmup_steps;)
        if (h->base.steps % h->levels[i].period == 0)
            return h->levels[i].group;
    return NULL;
}

static bool hierarchical_due(const tt_model_averager *a) { return group_due((const hierarchical *)a) != NULL; }

/* Abort the groups of all levels: other ranks may wait for this one in each of them. */
static void tell_all_levels(const tt_model_averager *a) {
    const hierarchical *h = (const hierarchical *)a;
    for (int i = 0; i < h->count; i++)
        tt__abort_with_error(h->levels[i].group);
}

static tt_status hierarchical_average(tt_model_averager *a, bool all) {
    return tt__average_plainly(a, all ? a->group : group_due((const hierarchical *)a));
}

static void hierarchical_end(tt_model_averager *a) {
    hierarchical *h = (hierarchical *)a;
    for (int i = 0; i < h->count; i++)
        if (h->levels[i].group != a->group)
            tt_destroy_process_group(h->levels[i].group);
}

static const tt__averager_class hierarchical_class = {
    .name = "tt_hierarchical_model_averager",
    .doing = "the averaging of parameters (tt_hierarchical_model_averager)",
    .size = sizeof(hierarchical),
    .due = hierarchical_due,
    .average = hierarchical_average,
    .tell = tell_all_levels,
    .end = hierarchical_end,
};

/* ---- making ---- */

static tt_status check_level(const tt_averaging_level *l, const tt_averaging_level *before, int i, int world) {
    const char *who = hierarchical_class.name;
    if (l->period < 1 || (before && l->period <= before->period))
        return tt__fail(TT_ERR_INVALID, "%s: level %d: expected a period of at least %" PRId64 " steps, got %" PRId64,
                        who, i, before ? before->period + 1 : 1, l->period);
    if (l->group_size < 1 || world % l->group_size != 0)
        return tt__fail(TT_ERR_INVALID, "%s: level %d: expected groups of a size that divides %d ranks, got %d", who, i,
                        world, l->group_size);
    if (before && l->group_size % before->group_size != 0)
        return tt__fail(TT_ERR_INVALID,
                        "%s: level %d: expected groups made of whole ones of the level before, of %d ranks, got %d",
                        who, i, before->group_size, l->group_size);
    return TT_OK;
}

static bool has_levels(const tt_hierarchical_model_averager_args *a) {
    return a->levels && a->count >= 1 && a->count <= LEVELS_MAX;
}

static tt_status check_hierarchical(const tt_hierarchical_model_averager_args *a) {
    const char *who = hierarchical_class.name;
    const int world = tt_get_world_size(a->group);
    if (!has_levels(a))
        return tt__fail(TT_ERR_INVALID, "%s: expected 1 to %d levels, got %s of %" PRId64, who, LEVELS_MAX,
                        a->levels ? "a list" : "NULL", a->count);
    if (a->warmup_steps < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected .warmup_steps of at least 0, got %" PRId64, who, a->warmup_steps);
    for (int i = 0; i < (int)a->count; i++)
        TT__TRY(check_level(&a->levels[i], i ? &a->levels[i - 1] : NULL, i, world));
    const int last = a->levels[a->count - 1].group_size;
    return last == world ? TT_OK
                         : tt__fail(TT_ERR_INVALID, "%s: expected a last level of all %d ranks, got groups of %d", who,
                                    world, last);
}

static tt_status make_levels(hierarchical *h, const tt_hierarchical_model_averager_args *a) {
    const int rank = tt_get_rank(a->group), world = tt_get_world_size(a->group);
    h->warmup_steps = a->warmup_steps;
    for (int i = 0; i < (int)a->count; i++) {
        level *l = &h->levels[h->count];
        *l = (level){a->levels[i].period, a->group};
        if (a->levels[i].group_size != world)
            TT__TRY(
                tt_group_split_with(TT_ARGS(tt_group_split_args, .out = &l->group, .group = a->group,
                                            .color = rank / a->levels[i].group_size, .file = hierarchical_class.name)));
        h->count++;
    }
    return TT_OK;
}

tt_status tt_hierarchical_model_averager_with(const tt_hierarchical_model_averager_args *given, size_t size) {
    tt_hierarchical_model_averager_args args;
    char texts[LEVELS_MAX + 1][96];
    const char *options[LEVELS_MAX + 1];
    TT__ARGS_COPY(args, given, size);
    const int count = has_levels(&args) ? (int)args.count : 0;
    snprintf(texts[0], sizeof texts[0], "%" PRId64 " levels, .warmup_steps %" PRId64, args.levels ? args.count : 0,
             args.warmup_steps);
    for (int i = 0; i < count; i++)
        snprintf(texts[i + 1], sizeof texts[0], "level %d: period %" PRId64 ", groups of %d", i, args.levels[i].period,
                 args.levels[i].group_size);
    for (int i = 0; i <= count; i++)
        options[i] = texts[i];
    tt__averager_plan plan = {&hierarchical_class, args.out, args.group,     args.params, options,
                              (size_t)count + 1,   NULL,     {.group = NULL}};
    TT__TRY(tt__averager_agree(&plan));
    TT__TRY(check_hierarchical(&args));
    tt_model_averager *a;
    tt_status status = tt__averager_make(&plan, &a);
    if (!status)
        status = tt__flat_take_rank_0(&a->flat, plan.cls->doing);
    if (!status)
        status = make_levels((hierarchical *)a, &args);
    return tt__averager_finish(&plan, a, status);
}
