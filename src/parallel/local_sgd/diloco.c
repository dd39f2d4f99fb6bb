/* DiLoCo: every rank takes `period` steps of its own (the inner optimizer, AdamW in the paper); then the average of how
 * far the ranks have come from their common starting point, the anchor, is a gradient, with which SGD with Nesterov's
 * momentum (the outer optimizer) moves the anchor, where all go on from.
 *
 *   delta := mean over ranks of (anchor - parameter)
 *   momentum_buffer := momentum * momentum_buffer + delta
 *   anchor := anchor - lr * (delta + momentum * momentum_buffer)
 *   parameter := anchor
 *
 * A. Douillard, Q. Feng, A. Rusu, R. Chhaparia, Y. Donchev, A. Kuncoro, M. Ranzato, A. Szlam, J. Shen: DiLoCo:
 * Distributed Low-Communication Training of Language Models. 2023. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/args.h"
#include "base/error.h"
#include "parallel/local_sgd/averager.h"
#include "tensor/parallel.h"

typedef struct diloco {
    tt_model_averager base;
    int64_t period;
    double lr, momentum;
} diloco;

enum { ANCHOR, MOMENTUM, DILOCO_SLOTS, BLOCK = 1 << 14 };
static const char *const diloco_slots[] = {"anchor", "momentum_buffer"};

/* A bucket: `delta` holds parameters, then their distance from the anchor, then its average. */
typedef struct outer_pass {
    void *delta, *anchor, *momentum_buffer;
    double lr, momentum;
} outer_pass;

/* The same twice, for both element types of buckets. */
#define OUTER_LOOPS(T, name)                                                 \
    static void leave_##name(void *user, int64_t begin, int64_t end) {       \
        const outer_pass *p = user;                                          \
        T *delta = p->delta;                                                 \
        const T *anchor = p->anchor;                                         \
        for (int64_t i = begin; i < end; i++)                                \
            delta[i] = anchor[i] - delta[i];                                 \
    }                                                                        \
    static void outer_step_##name(void *user, int64_t begin, int64_t end) {  \
        const outer_pass *p = user;                                          \
        const T *delta = p->delta, lr = (T)p->lr, momentum = (T)p->momentum; \
        T *anchor = p->anchor, *buffer = p->momentum_buffer;                 \
        for (int64_t i = begin; i < end; i++) {                              \
            buffer[i] = momentum * buffer[i] + delta[i];                     \
            anchor[i] -= lr * (delta[i] + momentum * buffer[i]);             \
        }                                                                    \
    }
OUTER_LOOPS(float, f32)
OUTER_LOOPS(double, f64)

static outer_pass pass_over(const diloco *d, size_t bucket) {
    return (outer_pass){.delta = d->base.flat.buckets[bucket].data,
                        .anchor = d->base.slots[ANCHOR].data[bucket],
                        .momentum_buffer = d->base.slots[MOMENTUM].data[bucket],
                        .lr = d->lr,
                        .momentum = d->momentum};
}

static tt_status before_bucket(const tt__flat *f, size_t bucket, void *user) {
    const tt__flat_bucket *b = &f->buckets[bucket];
    outer_pass pass = pass_over(user, bucket);
    TT__TRY(tt__flat_pack(f, bucket));
    tt__parallel_for(b->count, BLOCK, b->dtype == TT_F64 ? leave_f64 : leave_f32, &pass);
    return TT_OK;
}

/* Every rank holds the same average, anchor and momentum, and so computes the same anchor. */
static tt_status after_bucket(const tt__flat *f, size_t bucket, void *user) {
    const diloco *d = user;
    const tt__flat_bucket *b = &f->buckets[bucket];
    outer_pass pass = pass_over(d, bucket);
    tt__parallel_for(b->count, BLOCK, b->dtype == TT_F64 ? outer_step_f64 : outer_step_f32, &pass);
    for (size_t i = 0; i < f->count; i++)
        if (f->entries[i].bucket == bucket)
            TT__TRY(tt__flat_copy(f->entries[i].param, d->base.slots[ANCHOR].views[i]));
    return TT_OK;
}

static bool diloco_due(const tt_model_averager *a) { return (a->steps + 1) % ((const diloco *)a)->period == 0; }

static tt_status diloco_average(tt_model_averager *a, bool all) {
    (void)all;
    return tt__flat_average(&a->flat, a->group, a->cls->doing, before_bucket, after_bucket, a);
}

static const tt__averager_class diloco_class = {
    .name = "tt_diloco",
    .doing = "the outer step of tt_diloco",
    .size = sizeof(diloco),
    .widen = true,
    .slots = DILOCO_SLOTS,
    .slot_names = diloco_slots,
    .due = diloco_due,
    .average = diloco_average,
};

/* ---- making ---- */

static tt_status check_diloco(const tt_diloco_args *a) {
    if (a->period < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a period of 1 step or more, got %" PRId64, diloco_class.name,
                        a->period);
    if (!(a->outer_lr > 0) || !isfinite(a->outer_lr))
        return tt__fail(TT_ERR_INVALID, "%s: expected an outer_lr above 0, got %g", diloco_class.name, a->outer_lr);
    if (!(a->outer_momentum >= 0 && a->outer_momentum < 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected an outer_momentum of 0 to below 1, got %g", diloco_class.name,
                        a->outer_momentum);
    return TT_OK;
}

/* The anchor begins as the parameters that all ranks have now. */
static tt_status begin_anchor(diloco *d) {
    for (size_t i = 0; i < d->base.flat.count; i++)
        TT__TRY(tt__flat_copy(d->base.slots[ANCHOR].views[i], d->base.flat.entries[i].param));
    return TT_OK;
}

tt_status tt_diloco_with(const tt_diloco_args *given, size_t size) {
    tt_diloco_args args;
    char period[64], lr[64], momentum[64];
    TT__ARGS_COPY(args, given, size);
    snprintf(period, sizeof period, "period %" PRId64, args.period);
    snprintf(lr, sizeof lr, "outer_lr %.17g", args.outer_lr);
    snprintf(momentum, sizeof momentum, "outer_momentum %.17g", args.outer_momentum);
    const tt__averager_plan plan = {
        &diloco_class, args.out, args.group, args.params, (const char *const[]){period, lr, momentum}, 3};
    TT__TRY(tt__averager_agree(&plan));
    TT__TRY(check_diloco(&args));
    tt_model_averager *a;
    tt_status status = tt__averager_make(&plan, &a);
    if (!status) {
        diloco *d = (diloco *)a;
        d->period = args.period;
        d->lr = args.outer_lr;
        d->momentum = args.outer_momentum;
        status = begin_anchor(d);
    }
    return tt__averager_finish(&plan, a, status);
}
