/* The backward pass of a wrapper, and the end of its step.
 *
 * Every leaf's gradient lies in a bucket of the reducer. The leaf's hook, called when the gradient is final, marks it
 * ready, which starts and advances reductions; the end of the pass waits for the rest. Parameters that the pass won't
 * reach are marked unused with its first gradient, so that no bucket waits for them. If operators run passes of their
 * own (tt_recompute(), tt_apply()), these marks come at the end. Parameters that are averaged last (.delay_all_reduce)
 * are marked at the end, too. */
#include "autograd/backward.h"
#include "autograd/leaf.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/record/recorder.h"
#include "parallel/ddp/ddp_state.h"

#include <tutti/functional.h>

/* ---- ranks with different numbers of steps or examples ---- */

/* Tell all ranks, before the first gradient of a step is marked, whether this one takes part. */
static void announce_presence(tt__ddp *d, bool present) {
    const tt__ddp_presence *p = d->presence;
    tt__reducer_set_examples(d->reducer, !present ? 0 : p->nominal ? p->examples : 1);
}

/* Scale the gradient by this rank's share. */
static tt_status weigh_gradient(const tt__ddp_slot *s) {
    const tt__ddp_presence *p = s->owner->presence;
    if (!p || p->examples == p->nominal || !p->nominal)
        return TT_OK;
    if (!s->touched)
        TT__TRY(tt__reducer_keep(s->owner->reducer, (int64_t)s->index));
    double share = (double)p->examples / (double)p->nominal;
    return tt_scale_(tt_grad(s->parameter), share) ? TT_OK : tt_last_status();
}

/* The factor that corrects averages, which were divided by the number of ranks. */
static double correction(const tt__ddp_presence *p, int world, int64_t examples) {
    if (p->present == 0)
        return 1;
    if (p->nominal)
        return (double)world * (double)p->nominal / (double)examples;
    return p->divide_by_present ? (double)world / p->present : 1;
}

static tt_status correct_averages(const tt__ddp *d, double factor) {
    for (size_t i = 0; i < d->attached; i++) {
        tt_tensor *grad = tt__grad_values(d->slots[i].parameter);
        if (grad && tt_reducer_was_used(d->reducer, (int64_t)i) && !tt_scale_(grad, factor))
            return tt_last_status();
    }
    return TT_OK;
}

/* The step has ended: learn who took part. TT_ERR_STATE: a rank has no more data, and .ends_early. */
static tt_status end_presence_step(tt__ddp *d) {
    tt__ddp_presence *p = d->presence;
    int world = tt_get_world_size(d->group), lowest = -1, gone = -1;
    int64_t all = 0;
    p->present = 0;
    for (int rank = 0; rank < world; rank++) {
        int64_t examples = tt__reducer_examples_of(d->reducer, rank);
        all += examples;
        p->present += examples > 0;
        if (examples > 0 && lowest < 0)
            lowest = rank;
        if (examples == 0 && gone < 0)
            gone = rank;
    }
    if (lowest >= 0)
        p->root = lowest;
    double factor = correction(p, world, all);
    if (factor != 1)
        TT__TRY(correct_averages(d, factor));
    if (p->ends_early && p->present > 0 && gone >= 0)
        return tt__fail(
            TT_ERR_STATE,
            "rank %d has no more data after %lld steps, when %d of %d ranks had (.end_early of tt_join_new)", gone,
            (long long)p->steps, p->present, world);
    p->steps++;
    return TT_OK;
}

/* ---- the end of a step: statistics, and new buckets ---- */

/* Times are shown as means over this many steps, as single steps vary. */
enum { SMOOTHED_STEPS = 16 };

static int64_t count_unused(const tt__ddp *d) {
    int64_t unused = 0;
    for (size_t i = 0; i < d->attached; i++)
        unused += !tt_reducer_was_used(d->reducer, (int64_t)i);
    return unused;
}

static int64_t gradient_bytes(const tt__ddp *d) {
    int64_t bytes = 0;
    for (int64_t b = 0; b < tt_reducer_bucket_count(d->reducer); b++)
        bytes += tt_reducer_bucket_bytes(d->reducer, b);
    return bytes;
}

static void smooth(int64_t *mean, int64_t now, int64_t steps) {
    *mean += (now - *mean) / (steps < SMOOTHED_STEPS ? steps : SMOOTHED_STEPS);
}

static void publish_step(tt__ddp *d) {
    const tt_ddp_logging_data *log = &d->times.log;
    int64_t *mean = d->times.mean_ns;
    smooth(&mean[0], log->forward_ns, log->steps);
    smooth(&mean[1], log->backward_ns, log->steps);
    smooth(&mean[2], log->averaging_ns, log->steps);
    smooth(&mean[3], log->overlap_ns, log->steps);
    tt__averaging shown = {.steps = log->steps,
                           .bytes = log->gradient_bytes,
                           .buckets = log->buckets,
                           .forward_ns = mean[0],
                           .backward_ns = mean[1],
                           .averaging_ns = mean[2],
                           .overlap_ns = mean[3]};
    tt__publish_averaging(&shown);
}

/* Note a step that has ended now, whose last gradient was ready at `ready_ns`. */
static void log_ddp_step(tt__ddp *d, int64_t ready_ns) {
    tt_ddp_logging_data *log = &d->times.log;
    int64_t begun_ns = d->reducer->first_begun_ns;
    log->steps++;
    log->forward_ns = d->times.forward_ns;
    log->backward_ns = ready_ns - d->times.first_ns;
    log->averaging_ns = tt__now_ns() - begun_ns;
    log->overlap_ns = ready_ns > begun_ns ? ready_ns - begun_ns : 0;
    log->unused = count_unused(d);
    log->parameters = (int64_t)d->attached;
    log->buckets = tt_reducer_bucket_count(d->reducer);
    log->gradient_bytes = gradient_bytes(d);
    d->times.forward_ns = 0;
    publish_step(d);
}

/* The first step has ended: form buckets in the order in which it made gradients. */
static tt_status rebuild_ddp_buckets(tt__ddp *d) {
    bool rebuilt;
    if (d->rebuilt || d->watcher) /* the watcher relies on the buckets */
        return TT_OK;
    d->rebuilt = true;
    tt_status status = tt__reducer_rebuild(d->reducer, &rebuilt);
    if (!status && rebuilt)
        status = tt__ddp_remake_twins(d);
    for (size_t i = 0; i < d->attached && rebuilt && !status; i++)
        if (tt_requires_grad(d->slots[i].parameter) && !d->slots[i].sparse) /* a frozen parameter has no gradient */
            status = tt__leaf_set_grad_storage(d->slots[i].parameter, tt__ddp_gradient_place(d, i));
    if (status) { /* some gradients may still lie in the old buckets, which go with the reducer */
        tt__reducer_abandon(d->reducer, status);
        return status;
    }
    tt__ddp_drop_old_twins(d);
    tt__reducer_drop_old(d->reducer);
    return TT_OK;
}

/* ---- the pass ---- */

static const char *name_of_slot(const tt__ddp_slot *s) { return s->owner->reducer->params[s->index].name; }

static tt_status clear_gradient(const tt__ddp_slot *s) { return s->sparse ? TT_OK : tt__ddp_clear_gradient(s); }

/* Mark the parameter ready. Its share of the average is the gradient that it has, even from an earlier pass. */
static tt_status mark_slot(tt__ddp_slot *s) {
    tt_reducer *r = s->owner->reducer;
    s->ready = true;
    s->absent = !tt__ddp_has_gradient(s);
    s->gives = !s->absent;
    if (s->absent)
        TT__TRY(clear_gradient(s));
    else if (!s->sparse)
        TT__TRY(weigh_gradient(s));
    TT__TRY(tt__ddp_add_to_shards(s));
    return s->touched ? tt_reducer_mark_ready(r, (int64_t)s->index) : tt_reducer_mark_unused(r, (int64_t)s->index);
}

/* Refuse a parameter that was frozen and is trained again: it lost its hook, so no gradient of it would be seen. */
static tt_status check_hooked(const tt__ddp_slot *s) {
    if (!tt_requires_grad(s->parameter) || tt__leaf_has_hook(s->parameter, tt__ddp_on_gradient))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "parameter \"%s\" was frozen (tt_requires_grad_()) and is trained again, which its wrapper does "
                    "not see: wrap the module again",
                    name_of_slot(s));
}

/* Mark all parameters that the current passes won't reach: those averaged last (`delayed`), or the others. *waits: some
 * may still be reached. */
static tt_status mark_unreached(tt__ddp *d, bool delayed, bool *waits) {
    *waits = false;
    for (size_t i = 0; i < d->attached; i++) {
        tt__ddp_slot *s = &d->slots[i];
        if (s->ready || s->delayed != delayed)
            continue;
        if (tt__gradient_may_come(s->parameter)) {
            *waits = true;
            continue;
        }
        TT__TRY(check_hooked(s));
        TT__TRY(mark_slot(s));
    }
    return TT_OK;
}

static tt_status finish_step(tt__ddp *d) {
    int64_t ready_ns = tt__now_ns();
    TT__TRY(tt_reducer_finish(d->reducer));
    TT__TRY(tt__ddp_average_rows(d));
    log_ddp_step(d, ready_ns);
    for (size_t i = 0; i < d->attached; i++) {
        tt__ddp_slot *s = &d->slots[i];
        if (s->absent && !s->sparse && tt_reducer_was_used(d->reducer, (int64_t)s->index))
            tt__leaf_define_grad(s->parameter);
        s->ready = s->touched = s->absent = s->gives = false;
    }
    d->stepping = false;
    if (d->stepper)
        TT__TRY(d->stepper->pass_ended(d));
    if (d->watcher)
        d->watcher->stepped(d->watcher_user);
    if (d->presence)
        TT__TRY(end_presence_step(d));
    TT__TRY(tt__ddp_end_shards(d));
    return rebuild_ddp_buckets(d);
}

static tt_status on_pass_end(void *user, tt_status pass) {
    tt__ddp *d = user;
    bool waits = false;
    tt_status status = pass ? pass : mark_unreached(d, false, &waits);
    if (!status && !waits)
        status = mark_unreached(d, true, &waits);
    if (status) {
        tt__reducer_abandon(d->reducer, status);
        return status;
    }
    if (waits) /* the second part of the pass may reach more (tt_backward_deferred()) */
        return TT_OK;
    status = finish_step(d);
    d->told = status != TT_OK; /* a failure here comes after the last bucket, or all ranks know of it */
    return status;
}

/* A pass that fails before its first gradient calls no hook. If it would have averaged, other ranks wait for it. */
void tt__ddp_pass_failed(void *user, const tt__reach *reach) {
    tt__ddp *d = user;
    bool reaches = !reach, told = d->told;
    d->told = false;
    for (size_t i = 0; i < d->attached && !reaches; i++)
        reaches = tt__reach_leaf(reach, d->slots[i].parameter) != NULL;
    if (reaches && d->sync && !told)
        tt__reducer_abandon(d->reducer, tt_last_status());
}

tt_status tt__ddp_on_gradient(tt_tensor *x, void *user) {
    (void)x;
    tt__ddp_slot *s = user;
    tt__ddp *d = s->owner;
    bool first = !d->stepping, waits;
    s->touched |= tt__ddp_has_gradient(s); /* operators may have given it none */
    if (!d->sync)
        return TT_OK;
    if (!tt__ddp_shard_is_last(d))
        return tt__ddp_shard_gradient(s);
    if (first)
        d->times.first_ns = tt__now_ns();
    d->stepping = true;
    if (first && d->presence)
        announce_presence(d, true);
    TT__TRY(tt__backward_on_end(on_pass_end, d));
    if (s->ready && !d->reducer->broken)
        return tt__fail(
            TT_ERR_STATE,
            "parameter \"%s\" got its gradient twice in a step: several passes give parts of it (name it in "
            ".delay_all_reduce of tt_ddp()), or the second part of an earlier pass "
            "(tt_backward_deferred()) was never run",
            name_of_slot(s));
    if (!s->delayed)
        TT__TRY(mark_slot(s));
    return first ? mark_unreached(d, false, &waits) : TT_OK;
}

/* ---- steps of others ---- */

/* Give no gradient, and take the average if others give one. */
static tt_status mark_shadow(tt__ddp_slot *s) {
    tt_reducer *r = s->owner->reducer;
    s->ready = true;
    s->absent = !tt__ddp_has_gradient(s);
    TT__TRY(tt__reducer_keep(r, (int64_t)s->index));
    TT__TRY(clear_gradient(s));
    return tt_reducer_mark_unused(r, (int64_t)s->index);
}

static tt_status shadow(tt__ddp *d) {
    bool left = false;
    for (size_t i = 0; i < d->attached; i++)
        left |= d->slots[i].touched;
    announce_presence(d, left);
    d->times.first_ns = tt__now_ns();
    for (size_t i = d->attached; i-- > 0;)
        TT__TRY(left ? mark_slot(&d->slots[i]) : mark_shadow(&d->slots[i]));
    return TT_OK;
}

tt_status tt__ddp_shadow_step(tt__ddp *d) {
    if (d->stepping)
        return tt__fail(TT_ERR_STATE, "a backward pass whose second part was never run (tt_backward_deferred()) is "
                                      "under way");
    tt_status status = shadow(d);
    if (status) {
        tt__reducer_abandon(d->reducer, status);
        return status;
    }
    return finish_step(d);
}
