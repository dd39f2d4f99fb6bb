/* A step: a group's runs are first gathered, so that a failure changes nothing in the group, and then updated in one
 * pass. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "optim/clipping/clip.h"
#include "optim/optimizer.h"
#include "tensor/device/capture.h"
#include "tensor/kernels/kernels.h"

#include <math.h>
#include <string.h>

/* ---- captured steps (tensor/device/capture.h): each replay gets its current options and counts
 * ---- */

/* A source's index: the group, and in it the parameter. */
enum { GROUP, PARAM };
enum { COUNT_WORDS = sizeof(tt__update_count) / sizeof(uint64_t) };
_Static_assert(COUNT_WORDS * sizeof(uint64_t) == sizeof(tt__update_count), "whole words");

/* The powers of the betas in this step, if the rule has betas. */
static void step_powers(const tt__optimizer_class *cls, const tt__optim_group *group, int64_t step, double power[2]) {
    for (int b = 0; b < 2 && cls->betas; b++)
        power[b] = pow(group->option[cls->betas + b], (double)step);
}

/* Refuse to capture a step in which a parameter's state begins, with TT_ERR_STATE: each replay would begin with
 * zeros. */
static tt_status step_check_begun(const char *who, const tt__optim_group *group, size_t param) {
    if (!tt__capturing(group->device))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: parameter %lld has no state yet, and a captured step can't begin it: take a step before the "
                    "capture (its warm-up)",
                    who, (long long)group->first + (long long)param);
}

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
    step_powers(o->cls, group, count.step, count.power);
    memcpy(words, &count, sizeof count);
}

static void count_step(const tt__graph_source *source) {
    const tt_optimizer *o = source->object;
    source_group(source)->state.steps[source->index[PARAM]] += o->cls->counts_steps;
}

/* If the thread captures a graph of the group's device, let the first n runs, and those from first_of_rows on, read
 * their options and counts from the graph, and let each replay count a step. */
static tt_status step_capture(const tt_optimizer *o, tt__optim_group *group, size_t n, size_t first_of_rows) {
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

static const char who[] = "tt_optimizer_step";

/* ---- gathering ---- */

static tt_status check_run_param(const tt__optim_group *group, size_t i) {
    const tt__optim_param *p = &group->params[i];
    if (tt_tensor_dtype(p->tensor) == p->dtype && tt_tensor_numel(p->tensor) == p->numel &&
        tt_tensor_device(p->tensor) == group->device)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: parameter %lld was %s of %lld elements on \"%s\" when it was added, and is %s on \"%s\" now; "
                    "make the optimizer after converting the module",
                    who, (long long)group->first + (long long)i, tt_dtype_name(p->dtype), (long long)p->numel,
                    tt_device_name(group->device), TT__DESCRIBE(p->tensor),
                    tt_device_name(tt_tensor_device(p->tensor)));
}

static tt_tensor **run_slot(const tt_optimizer *o, const tt__optim_group *group, size_t param, int slot) {
    return &group->state.slot[param * (size_t)o->cls->slots + (size_t)slot];
}

/* Gather the state that the group's options need. */
static tt_status gather_state(const tt_optimizer *o, tt__optim_group *group, tt__optim_run *run) {
    for (int s = 0; s < o->cls->slots; s++)
        run->fresh[s] = !*run_slot(o, group, run->param, s);
    for (int s = 0; s < o->cls->slots; s++) {
        if (!tt__optim_uses(o->cls, group->option, s))
            continue;
        if (run->fresh[s])
            TT__TRY(step_check_begun(who, group, run->param));
        const tt_tensor *slot = tt__optim_state_slot(o->cls, group, &group->state, run->param, s);
        if (!slot)
            return tt_last_status();
        run->state[s] = slot->data;
    }
    return TT_OK;
}

/* Gather the run of parameter i, behind `begin` elements. */
static tt_status gather_run(const tt_optimizer *o, tt__optim_group *group, size_t i, int64_t begin,
                            tt__optim_run *run) {
    const tt__optim_param *p = &group->params[i];
    *run = (tt__optim_run){.param = i,
                           .tensor = tt_contiguous(p->tensor),
                           .grad = tt_contiguous(tt__grad_values(p->tensor)),
                           .rows = tt_sparse_grad_indices(p->tensor),
                           .begin = begin};
    if (!run->tensor || !run->grad)
        return tt_last_status();
    run->update = (tt__update){.n = p->numel,
                               .p = run->tensor->data,
                               .g = run->grad->data,
                               .fresh = run->fresh,
                               .option = group->option,
                               .step = o->cls->counts_steps ? group->state.steps[i] + 1 : 0,
                               .grad_norm = o->grad_norm};
    step_powers(o->cls, group, run->update.step, run->update.power);
    return gather_state(o, group, run);
}

/* Free state that was made for a step that failed; the next step makes it again, fresh. */
static void forget_fresh(const tt_optimizer *o, tt__optim_group *group, const tt__optim_run *run) {
    for (int s = 0; s < o->cls->slots; s++) {
        tt_tensor **slot = run_slot(o, group, run->param, s);
        if (!run->fresh[s] || !*slot)
            continue;
        tt__tensor_disown(*slot);
        *slot = NULL;
    }
}

/* Which parameters of a group are stepped. */
typedef struct stepped_params {
    const int64_t *numbers; /* in the optimizer; NULL: the group's first ones */
    size_t count;
} stepped_params;

/* Gather these runs of a group, one behind the other. Those with sparse gradients are put at the end of the group's
 * room. On failure none is left. */
static tt_status gather_group(const tt_optimizer *o, tt__optim_group *group, stepped_params which, size_t *n,
                              size_t *first_of_rows) {
    int64_t begin = 0;
    tt_status status = TT_OK;
    *n = 0;
    *first_of_rows = group->count;
    for (size_t k = 0; k < which.count && !status; k++) {
        const size_t i = which.numbers ? (size_t)(which.numbers[k] - group->first) : k;
        const tt_tensor *x = group->params[i].tensor;
        if (!tt__grad_values(x))
            continue;
        const bool whole = tt_grad(x) != NULL;
        status = check_run_param(group, i);
        if (!status)
            status = tt__optim_check_rows(who, o, group, i);
        if (status)
            break;
        status = gather_run(o, group, i, begin, &group->runs[whole ? (*n)++ : --*first_of_rows]);
        begin += whole ? group->params[i].numel : 0;
    }
    for (size_t k = 0; status && k < group->count; k++)
        if (k < *n || k >= *first_of_rows)
            forget_fresh(o, group, &group->runs[k]);
    return status;
}

/* ---- updating ---- */

static tt_status device_lacks_rule(const tt_optimizer *o, const tt__optim_group *group) {
    return tt__fail(TT_ERR_UNSUPPORTED, "%s: %s has no rule for the device \"%s\"", who, o->cls->name,
                    tt_device_name(group->device));
}

static tt_status update_on_device(const tt_optimizer *o, const tt__optim_group *group, tt__optim_run *run) {
    if (!o->cls->rule)
        return device_lacks_rule(o, group);
    run->update.state = run->state;
    if (run->rows)
        return tt__optim_rows_far(who, o, group, run);
    tt__kernel_step kernel = TT__KERNEL(who, run->tensor, step);
    tt_status status = kernel ? kernel(run->tensor, o->cls->rule, &run->update) : tt_last_status();
    return kernel && status == TT_ERR_UNSUPPORTED ? device_lacks_rule(o, group) : status;
}

/* Finish an updated run: copy its values to the parameter. */
static tt_status finish_run(tt__optim_group *group, const tt__optim_run *run) {
    const tt__optim_param *p = &group->params[run->param];
    if (!run->update.count_at) /* capturing takes no step yet */
        group->state.steps[run->param] = run->update.step;
    if (run->tensor != p->tensor)
        TT__TRY(tt_copy(p->tensor, run->tensor));
    else
        tt__storage_touch(p->tensor->storage);
    return p->low ? tt__master_end(who, p) : TT_OK;
}

static tt_status update_runs_on_device(const tt_optimizer *o, tt__optim_group *group, size_t n, size_t first_of_rows) {
    tt_status status = step_capture(o, group, n, first_of_rows);
    for (size_t k = 0; k < group->count; k++) {
        if (k >= n && k < first_of_rows)
            continue;
        if (!status)
            status = update_on_device(o, group, &group->runs[k]);
        if (!status)
            status = finish_run(group, &group->runs[k]);
        else
            forget_fresh(o, group, &group->runs[k]);
    }
    return status;
}

static tt_status update_group(const tt_optimizer *o, tt__optim_group *group, stepped_params which) {
    tt_status first = TT_OK;
    size_t n, first_of_rows;
    TT__TRY(gather_group(o, group, which, &n, &first_of_rows));
    if (!tt__device_is_host(group->device))
        return update_runs_on_device(o, group, n, first_of_rows);
    TT__TRY(tt__optim_fused(o, group, group->runs, n));
    for (size_t k = first_of_rows; k < group->count; k++)
        tt__optim_rows(o, group, &group->runs[k]);
    for (size_t k = 0; k < group->count; k++) { /* all were updated, so all are finished despite a failure */
        if (k >= n && k < first_of_rows)
            continue;
        tt_status status = finish_run(group, &group->runs[k]);
        first = first ? first : status;
    }
    return first;
}

static tt_status sum_squares_of_grads(const tt_optimizer *o, double *sum) {
    tt__grad_total total = {.who = who, .p = 2};
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            tt_tensor *grad = tt_grad(o->groups[g].params[i].tensor);
            if (grad)
                TT__TRY(tt__grad_total_measure(&total, grad));
        }
    TT__TRY(tt__grad_total_end(&total));
    *sum = total.value;
    return TT_OK;
}

/* Measure all gradients of all groups, if the rule needs that. `own`: the step's status so far. */
static tt_status measure_grads(tt_optimizer *o, tt_status own) {
    double sum[1 + TT__JOIN_ROOM] = {0};
    if (!o->cls->measures_grads)
        return own;
    if (!own)
        own = sum_squares_of_grads(o, sum);
    if (o->shards)
        own = o->shards->join(o->shards_user, who, own, sum, 1, false);
    o->grad_norm = sqrt(sum[0]);
    return own;
}

static tt_status update_groups(tt_optimizer *o) {
    tt_status status = TT_OK;
    for (size_t g = 0; g < o->group_count && !status; g++)
        status = update_group(o, &o->groups[g], (stepped_params){NULL, o->groups[g].count});
    if (status && o->shards && o->cls->measure)
        o->shards->abandon(o->shards_user); /* others wait in join() for sums over the slices of a group */
    return status;
}

static tt_status begin_masters(tt_optimizer *o) {
    tt_status status = o->masters_begun ? TT_OK : tt__masters_begin(who, o);
    o->masters_begun = false;
    return status;
}

/* `begun`: the step's status so far; after a failure this rank still takes part in collective calls. */
static tt_status update_parameters(tt_optimizer *optimizer, tt_status begun) {
    int scope = tt_scope_begin(); /* ends copies of parameters in other layouts */
    bool before = tt_no_grad_begin();
    tt_status status = begun ? begun : scope ? begin_masters(optimizer) : tt_last_status();
    status = measure_grads(optimizer, status);
    if (!status)
        status = update_groups(optimizer);
    tt_no_grad_end(before);
    tt_scope_end(scope);
    return status;
}

tt_status tt_optimizer_step(tt_optimizer *optimizer) {
    if (!optimizer)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer is NULL", who);
    TT__TRY(tt__optim_check_unattended(who, optimizer));
    const tt__optim_shards *shards = optimizer->shards;
    tt_status status = shards ? shards->begin(optimizer->shards_user, who) : TT_OK;
    status = update_parameters(optimizer, status);
    return shards ? shards->end(optimizer->shards_user, who, status) : status;
}

/* ---- a part of a step, for a stepper ---- */

static tt_status step_in_groups(const tt_optimizer *o, const int64_t *numbers, size_t count) {
    tt_status status = TT_OK;
    for (size_t g = 0, from = 0, to; g < o->group_count && !status; g++, from = to) {
        tt__optim_group *group = &o->groups[g];
        const int64_t end = group->first + (int64_t)group->count;
        for (to = from; to < count && numbers[to] < end && !status; to++) {
            const tt__optim_param *p = &group->params[numbers[to] - group->first];
            status = p->low ? tt__master_begin(who, p) : TT_OK;
        }
        if (!status)
            status = update_group(o, group, (stepped_params){numbers + from, to - from});
    }
    return status;
}

tt_status tt__optim_step_some(const tt_optimizer *o, const int64_t *numbers, size_t count) {
    int scope = tt_scope_begin(); /* ends copies of parameters in other layouts */
    bool before = tt_no_grad_begin();
    tt_status status = scope ? step_in_groups(o, numbers, count) : tt_last_status();
    tt_no_grad_end(before);
    tt_scope_end(scope);
    return status;
}
