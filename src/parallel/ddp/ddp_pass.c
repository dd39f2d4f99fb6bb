/* The backward pass of a wrapper: every leaf's gradient lies in a bucket of the reducer. Its hook, called when the
 * gradient is final, marks it ready, which starts and advances reductions; the end of the pass waits for the rest.
 * Which parameters the pass won't reach is known when it gives its first gradient, so that they keep no bucket waiting;
 * at its end where operators in it run passes of their own (tt_recompute(), tt_apply()). Parameters that are averaged
 * last (.delay_all_reduce) are marked then, too. */
#include "autograd/backward.h"
#include "autograd/leaf.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "parallel/ddp/ddp_device.h"
#include "parallel/ddp/ddp_shards.h"
#include "parallel/ddp/ddp_sparse.h"

static const char *name_of_slot(const tt__ddp_slot *s) { return s->owner->reducer->params[s->index].name; }

static tt_status clear_gradient(const tt__ddp_slot *s) { return s->sparse ? TT_OK : tt__ddp_clear_gradient(s); }

/* Its share of the average is the gradient that it has, also from earlier, if any. */
static tt_status mark_slot(tt__ddp_slot *s) {
    tt_reducer *r = s->owner->reducer;
    s->ready = true;
    s->absent = !tt__ddp_has_gradient(s);
    s->gives = !s->absent;
    if (s->absent)
        TT__TRY(clear_gradient(s));
    else if (!s->sparse)
        TT__TRY(tt__ddp_weigh(s));
    TT__TRY(tt__ddp_add_to_shards(s));
    return s->touched ? tt_reducer_mark_ready(r, (int64_t)s->index) : tt_reducer_mark_unused(r, (int64_t)s->index);
}

/* One that was frozen, and is trained again, would never be seen to be used. */
static tt_status check_hooked(const tt__ddp_slot *s) {
    if (!tt_requires_grad(s->parameter) || tt__leaf_has_hook(s->parameter, tt__ddp_on_gradient))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "parameter \"%s\" was frozen (tt_requires_grad_()) and is trained again, which its wrapper does "
                    "not see: wrap the module again",
                    name_of_slot(s));
}

/* Mark all parameters that the passes under way won't reach: those averaged last (`delayed`), or the others. *waits:
 * some may still be reached. */
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
    tt__ddp_log_step(d, ready_ns);
    for (size_t i = 0; i < d->attached; i++) {
        tt__ddp_slot *s = &d->slots[i];
        if (s->absent && !s->sparse && tt_reducer_was_used(d->reducer, (int64_t)s->index))
            tt__leaf_define_grad(s->parameter);
        s->ready = s->touched = s->absent = s->gives = false;
    }
    d->stepping = false;
    if (d->stepper)
        TT__TRY(tt__ddp_step_rest(d));
    if (d->watcher)
        d->watcher->stepped(d->watcher_user);
    if (d->presence)
        TT__TRY(tt__ddp_step_ended(d));
    TT__TRY(tt__ddp_end_shards(d));
    return tt__ddp_rebuild(d);
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
    if (waits) /* for the second part of the pass (tt_backward_deferred()) */
        return TT_OK;
    status = finish_step(d);
    d->told = status != TT_OK; /* it failed after the last bucket, or was told to the others there */
    return status;
}

/* The pass may have failed before its first gradient, which no hook of ours sees: other ranks wait all the same, unless
 * it averages nothing. */
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
    s->touched |= tt__ddp_has_gradient(s); /* the operators that it went into may have given it none */
    if (!d->sync)
        return TT_OK;
    if (!tt__ddp_shard_is_last(d))
        return tt__ddp_shard_gradient(s);
    if (first)
        d->first_ns = tt__now_ns();
    d->stepping = true;
    if (first && d->presence)
        tt__ddp_announce(d, true);
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

/* Give nothing, and take the average if others give something. */
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
    tt__ddp_announce(d, left);
    d->first_ns = tt__now_ns();
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
