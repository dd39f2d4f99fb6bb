/* A step inside the backward pass: a bucket's parameters are stepped as soon as its averages are there. */
#include "parallel/ddp/ddp_step.h"

#include <stdlib.h>

#include "autograd/leaf.h"
#include "base/error.h"

/* ---- a step */

const tt__optim_param *tt__ddp_stepped_param(const tt_optimizer *o, int64_t number) {
    size_t g = o->group_count - 1;
    while (g > 0 && o->groups[g].first > number)
        g--;
    return &o->groups[g].params[number - o->groups[g].first];
}

/* No pass gave it a gradient on this rank, but other ranks' average is there: it becomes tt_grad(). */
static void define_absent(const tt__ddp *d, int64_t slot) {
    tt__ddp_slot *s = &d->slots[slot];
    if (s->absent && !s->sparse && tt_reducer_was_used(d->reducer, slot)) {
        tt__leaf_define_grad(s->parameter);
        s->absent = false;
    }
}

/* Sparse parameters, which are averaged after the buckets, and those that the wrapper doesn't average (slot -1) lie in
 * none: they are stepped when the pass has ended. */
static bool lies_in_buckets(const tt__ddp *d, int64_t slot) { return slot >= 0 && !d->slots[slot].sparse; }

static tt_status step_listed(const tt__ddp_stepper *s, size_t n) {
    if (n == 0)
        return TT_OK;
    if (tt__optim_step_some(s->optimizer, s->list, n))
        return tt__fail_prefix("the optimizer's step in the backward pass");
    for (size_t k = 0; s->zero_grad && k < n; k++) {
        const tt__optim_param *p = tt__ddp_stepped_param(s->optimizer, s->list[k]);
        tt_zero_grad(p->tensor);
        tt_zero_grad(p->low);
    }
    return TT_OK;
}

tt_status tt__ddp_step_bucket(void *user, size_t bucket) {
    const tt__ddp *d = user;
    const tt__ddp_stepper *s = d->stepper;
    size_t n = 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_in_buckets(d, s->slot_of[i]) || d->reducer->params[s->slot_of[i]].bucket != bucket)
            continue;
        define_absent(d, s->slot_of[i]);
        s->list[n++] = i;
    }
    return step_listed(s, n);
}

tt_status tt__ddp_step_rest(const tt__ddp *d) {
    const tt__ddp_stepper *s = d->stepper;
    size_t n = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (!lies_in_buckets(d, s->slot_of[i]))
            s->list[n++] = i;
    return step_listed(s, n);
}

/* ---- the end */

void tt__ddp_stepper_free(tt__ddp_stepper *s) {
    if (s) {
        free(s->slot_of);
        free(s->list);
    }
    free(s);
}

void tt__ddp_end_stepper(tt__ddp *d) {
    if (!d->stepper)
        return;
    d->reducer->bucket_ended = NULL;
    d->stepper->optimizer->stepper = NULL;
    tt__ddp_stepper_free(d->stepper);
    d->stepper = NULL;
}
