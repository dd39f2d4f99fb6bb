/* An optimizer that steps inside the backward pass: when a bucket's averages are there, the reducer tells the wrapper,
 * which steps the bucket's parameters. Meanwhile tt_optimizer_step() refuses the optimizer. */
#include "parallel/ddp/ddp_state.h"

#include "autograd/leaf.h"
#include "base/args.h"
#include "base/error.h"
#include "optim/optimizer.h"
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>

static const char step_name[] = "tt_ddp_step_in_backward";

enum { STEP_TEXT = 256 };

typedef struct ddp_stepper {
    tt__ddp_stepper base;
    tt_optimizer *optimizer;
    int64_t count;    /* of the optimizer's parameters, numbered through its groups */
    int64_t *slot_of; /* (count): the wrapper's slot; -1: the wrapper doesn't average it */
    int64_t *list;    /* (count): room for the numbers of parameters that are stepped together */
} ddp_stepper;

/* ---- a step ---- */

/* The optimizer's parameter of this number. */
static const tt__optim_param *ddp_stepped_param(const tt_optimizer *o, int64_t number) {
    size_t g = o->group_count - 1;
    while (g > 0 && o->groups[g].first > number)
        g--;
    return &o->groups[g].params[number - o->groups[g].first];
}

/* If no pass on this rank gave the parameter a gradient, but other ranks' average is there, make that tt_grad(). */
static void define_absent(const tt__ddp *d, int64_t slot) {
    tt__ddp_slot *s = &d->slots[slot];
    if (s->absent && !s->sparse && tt_reducer_was_used(d->reducer, slot)) {
        tt__leaf_define_grad(s->parameter);
        s->absent = false;
    }
}

/* Sparse parameters are averaged after the buckets, and slot -1 isn't averaged: both are stepped when the pass has
 * ended. */
static bool lies_in_buckets(const tt__ddp *d, int64_t slot) { return slot >= 0 && !d->slots[slot].sparse; }

static tt_status step_listed(const ddp_stepper *s, size_t n) {
    if (n == 0)
        return TT_OK;
    if (tt__optim_step_some(s->optimizer, s->list, n))
        return tt__fail_prefix("the optimizer's step in the backward pass");
    for (size_t k = 0; s->base.zero_grad && k < n; k++) {
        const tt__optim_param *p = ddp_stepped_param(s->optimizer, s->list[k]);
        tt_zero_grad(p->tensor);
        tt_zero_grad(p->low);
    }
    return TT_OK;
}

/* The reducer's bucket_ended(), with the wrapper as user: step the parameters of a bucket that is averaged. */
static tt_status ddp_step_bucket(void *user, size_t bucket) {
    const tt__ddp *d = user;
    const ddp_stepper *s = (const ddp_stepper *)d->stepper;
    size_t n = 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_in_buckets(d, s->slot_of[i]) || d->reducer->params[s->slot_of[i]].bucket != bucket)
            continue;
        define_absent(d, s->slot_of[i]);
        s->list[n++] = i;
    }
    return step_listed(s, n);
}

/* Step the parameters that lie in no bucket. */
static tt_status ddp_step_rest(const tt__ddp *d) {
    const ddp_stepper *s = (const ddp_stepper *)d->stepper;
    size_t n = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (!lies_in_buckets(d, s->slot_of[i]))
            s->list[n++] = i;
    return step_listed(s, n);
}

/* ---- life ---- */

static void ddp_stepper_free(ddp_stepper *s) {
    if (s) {
        free(s->slot_of);
        free(s->list);
    }
    free(s);
}

static void ddp_end_stepper(tt__ddp *d) {
    ddp_stepper *s = (ddp_stepper *)d->stepper;
    if (!s)
        return;
    d->reducer->bucket_ended = NULL;
    s->optimizer->stepper = NULL;
    ddp_stepper_free(s);
    d->stepper = NULL;
}

static void optimizer_goes(void *user) { ddp_end_stepper(user); }

static const tt__optim_stepper in_backward = {.let_go = optimizer_goes};

tt_status tt__ddp_check_stepper(const char *who, const tt__ddp_presence *p, bool zero_grad) {
    if (p->nominal || p->divide_by_present || p->ends_early)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: with an optimizer that steps in the backward pass a tt_join can have no .examples, "
                        ".divide_by_present or .end_early, which judge a step when it has ended",
                        who);
    if (!zero_grad)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: with a tt_join, tt_ddp_step_in_backward() needs .zero_grad: else gradients from earlier "
                        "would be stepped once more when no rank has data",
                        who);
    return TT_OK;
}

static tt_status check_step_wrapper(const tt__ddp *d, bool zero_grad) {
    if (d->known_as)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the wrapper is tt_elastic_restore()'s, which goes back to a step that was whole",
                        step_name);
    if (d->virtual_ranks)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: expected a wrapper without .virtual_ranks, whose averages are there when the pass ends",
                        step_name);
    if (d->watcher)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: a tt_zero_optimizer() works with the wrapper's gradients", step_name);
    if (d->stepping)
        return tt__fail(TT_ERR_STATE,
                        "%s: a backward pass is under way, whose second part was not run (tt_backward_deferred())",
                        step_name);
    return d->presence ? tt__ddp_check_stepper(step_name, d->presence, zero_grad) : TT_OK;
}

static tt_status check_step_optimizer(const tt__ddp *d, const tt_optimizer *o) {
    if (o->shards)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: the optimizer updates slices of parameters, all at once", step_name);
    if (o->cls->measures_grads || o->cls->measure)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: %s needs the norm of all gradients before it steps any", step_name,
                        o->cls->name);
    if (o->stepper && o->stepper_user != d)
        return tt__fail(TT_ERR_STATE, "%s: the optimizer steps in another wrapper's backward pass already", step_name);
    return TT_OK;
}

static int64_t slot_with_parameter(const tt__ddp *d, const tt_tensor *x) {
    for (size_t i = 0; i < d->attached; i++)
        if (d->slots[i].parameter == x)
            return (int64_t)i;
    return -1;
}

/* Find the optimizer's parameters among the wrapper's. At least one must be there, and none be another wrapper's. */
static tt_status map_parameters(const tt__ddp *d, ddp_stepper *s) {
    int64_t found = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const tt__optim_param *p = ddp_stepped_param(s->optimizer, i);
        const tt_tensor *x = p->low ? p->low : p->tensor;
        s->slot_of[i] = slot_with_parameter(d, x);
        found += s->slot_of[i] >= 0;
        if (s->slot_of[i] < 0 && tt__leaf_has_hook(x, tt__ddp_on_gradient))
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: the optimizer's parameter %lld is averaged by another wrapper; expected an optimizer "
                            "for each",
                            step_name, (long long)i);
    }
    if (!found)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer has none of the wrapper's %zu parameters", step_name,
                        d->attached);
    return TT_OK;
}

static tt_status make_stepper(const tt__ddp *d, const tt_ddp_step_in_backward_args *a, ddp_stepper **out) {
    TT__TRY(check_step_wrapper(d, a->zero_grad));
    TT__TRY(check_step_optimizer(d, a->optimizer));
    const tt__optim_group *last = &a->optimizer->groups[a->optimizer->group_count - 1];
    const int64_t count = last->first + (int64_t)last->count;
    ddp_stepper *s = *out = calloc(1, sizeof *s);
    if (s)
        *s = (ddp_stepper){.optimizer = a->optimizer,
                           .base = {.zero_grad = a->zero_grad, .pass_ended = ddp_step_rest, .end = ddp_end_stepper},
                           .count = count,
                           .slot_of = calloc((size_t)count, sizeof *s->slot_of),
                           .list = calloc((size_t)count, sizeof *s->list)};
    if (!s || !s->slot_of || !s->list)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld parameters", step_name, (long long)count);
    return map_parameters(d, s);
}

/* Make a stepper, and compare it with the other ranks': all must be alike. */
static tt_status begin_stepper(const tt__ddp *d, const tt_ddp_step_in_backward_args *a, ddp_stepper **out) {
    char text[STEP_TEXT];
    TT__TRY(make_stepper(d, a, out));
    const ddp_stepper *s = *out;
    snprintf(text, sizeof text, "%s of %lld parameters in %zu groups, .zero_grad = %d", s->optimizer->cls->name,
             (long long)s->count, s->optimizer->group_count, s->base.zero_grad);
    return tt__agree_on(d->group, step_name, (const char *const[]){text}, 1);
}

tt_status tt_ddp_step_in_backward_with(const tt_ddp_step_in_backward_args *given, size_t size) {
    tt_ddp_step_in_backward_args a;
    TT__ARGS_COPY(a, given, size);
    tt__ddp *d = tt__ddp_of(a.ddp);
    if (!d || !d->group)
        return tt__fail(d ? TT_ERR_STATE : TT_ERR_INVALID, "%s: %s", step_name,
                        d ? "the wrapper has no group yet" : "expected a wrapper that tt_ddp() made");
    if (!a.optimizer) {
        ddp_end_stepper(d);
        return TT_OK;
    }
    ddp_stepper *s = NULL;
    const tt__joint_call call = tt__joint_call_begin(d->group, step_name);
    tt_status status = tt__joint_call_end(&call, begin_stepper(d, &a, &s));
    if (status) {
        ddp_stepper_free(s);
        return status;
    }
    ddp_end_stepper(d);
    d->stepper = &s->base;
    a.optimizer->stepper = &in_backward;
    a.optimizer->stepper_user = d;
    d->reducer->bucket_ended_user = d;
    d->reducer->bucket_ended = ddp_step_bucket;
    return TT_OK;
}
