#include "optim/step_capture.h"

#include "base/error.h"
#include "tensor/device/capture.h"

#include <math.h>
#include <string.h>

/* A source's index: the group, and in it the parameter. */
enum { GROUP, PARAM };
enum { COUNT_WORDS = sizeof(tt__update_count) / sizeof(uint64_t) };
_Static_assert(COUNT_WORDS * sizeof(uint64_t) == sizeof(tt__update_count), "whole words");

void tt__step_powers(const tt__optimizer_class *cls, const tt__optim_group *group, int64_t step, double power[2]) {
    for (int b = 0; b < 2 && cls->betas; b++)
        power[b] = pow(group->option[cls->betas + b], (double)step);
}

tt_status tt__step_check_begun(const char *who, const tt__optim_group *group, size_t param) {
    if (!tt__capturing(group->device))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: parameter %lld has no state yet, and a captured step can't begin it: take a step before the "
                    "capture (its warm-up)",
                    who, (long long)group->first + (long long)param);
}

/* ---- what a replay is given ---- */

static tt__optim_group *source_group(const tt__graph_source *source) {
    const tt_optimizer *o = source->object;
    return &o->groups[source->index[GROUP]];
}

static void give_options(const tt__graph_source *source, uint64_t *words) {
    memcpy(words, source_group(source)->option, sizeof source_group(source)->option);
}

static void give_count(const tt__graph_source *source, uint64_t *words) {
    const tt_optimizer *o = source->object;
    const tt__optim_group *group = source_group(source);
    tt__update_count count = {.step = o->cls->counts_steps ? group->state.steps[source->index[PARAM]] + 1 : 0};
    tt__step_powers(o->cls, group, count.step, count.power);
    memcpy(words, &count, sizeof count);
}

static void count_step(const tt__graph_source *source) {
    const tt_optimizer *o = source->object;
    source_group(source)->state.steps[source->index[PARAM]] += o->cls->counts_steps;
}

/* ---- capturing ---- */

tt_status tt__step_capture(const tt_optimizer *o, tt__optim_group *group, size_t n, size_t first_of_rows) {
    tt__graph *graph = tt__capturing(group->device);
    const void *options = NULL, *count = NULL;
    if (!graph)
        return TT_OK;
    tt__graph_source source = {.object = (void *)o,
                               .index = {[GROUP] = (size_t)(group - o->groups)},
                               .words = TT__OPTIM_OPTIONS,
                               .give = give_options};
    TT__TRY(tt__graph_add(graph, &source, &options));
    source.words = COUNT_WORDS;
    source.give = give_count;
    source.enqueued = count_step;
    for (size_t k = 0; k < group->count; k++) {
        if (k >= n && k < first_of_rows)
            continue;
        source.index[PARAM] = group->runs[k].param;
        TT__TRY(tt__graph_add(graph, &source, &count));
        group->runs[k].update.option_at = options;
        group->runs[k].update.count_at = count;
    }
    return TT_OK;
}
