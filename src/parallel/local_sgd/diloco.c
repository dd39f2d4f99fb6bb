/* DiLoCo. Every rank takes `period` steps of its own with the inner optimizer (AdamW in the paper), from a common
 * point, the anchor. The average distance of the ranks from the anchor is then a gradient for the outer optimizer, SGD
 * with Nesterov's momentum. It moves the anchor, from which all ranks go on.
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
#include <stdlib.h>

#include "base/args.h"
#include "base/error.h"
#include "base/text/format.h"
#include "comm/group.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/local_sgd/averager.h"
#include "tensor/core/tensor.h"
#include "tensor/device/parallel.h"

typedef struct diloco {
    tt_model_averager base;
    int64_t period;
    double lr, momentum;
    void *scratch;             /* room for the largest parameter, if buckets have another type or lie on a device */
    tt_tensor **scratch_views; /* of each parameter */
} diloco;

enum { ANCHOR, MOMENTUM, DILOCO_SLOTS, BLOCK = 1 << 14 };
static const char *const diloco_slots[] = {"anchor", "momentum_buffer"};

/* A parameter. `delta` holds it, then its distance from the anchor, then the average of that. */
typedef struct outer_pass {
    void *delta, *anchor, *momentum_buffer;
    double lr, momentum;
} outer_pass;

/* The loops, for both types of state. */
#define OUTER_LOOPS(T, name)                                                 \
    static void leave_##name(void *user, int64_t begin, int64_t end) {       \
        const outer_pass *p = user;                                          \
        const T *anchor = p->anchor;                                         \
        T *delta = p->delta;                                                 \
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

/* Return the memory for a parameter's delta: its bucket, if that is on the host and has the state's type, else the
 * scratch memory. */
static tt_tensor *delta_of(const diloco *d, size_t i) {
    tt_tensor *view = d->base.flat.entries[i].view, *anchor = d->base.slots[ANCHOR].views[i];
    return tt_tensor_dtype(view) == tt_tensor_dtype(anchor) && tt__device_is_host(tt_tensor_device(view))
               ? view
               : d->scratch_views[i];
}

static void run_outer_pass(const diloco *d, size_t i, void (*f32)(void *, int64_t, int64_t),
                           void (*f64)(void *, int64_t, int64_t)) {
    tt_tensor *anchor = d->base.slots[ANCHOR].views[i];
    outer_pass pass = {.delta = tt_tensor_data(delta_of(d, i)),
                       .anchor = tt_tensor_data(anchor),
                       .momentum_buffer = tt_tensor_data(d->base.slots[MOMENTUM].views[i]),
                       .lr = d->lr,
                       .momentum = d->momentum};
    tt__parallel_for(tt_tensor_numel(anchor), BLOCK, tt_tensor_dtype(anchor) == TT_F64 ? f64 : f32, &pass);
}

/* Write this rank's distances from the anchor to the bucket. */
static tt_status before_bucket(const tt__flat *f, size_t bucket, void *user) {
    const diloco *d = user;
    for (size_t i = 0; i < f->count; i++) {
        const tt__flat_entry *e = &f->entries[i];
        if (e->bucket != bucket)
            continue;
        TT__TRY(tt__flat_copy(delta_of(d, i), e->param));
        run_outer_pass(d, i, leave_f32, leave_f64);
        if (delta_of(d, i) != e->view)
            TT__TRY(tt__flat_copy(e->view, delta_of(d, i)));
    }
    return TT_OK;
}

/* Move the anchor and the parameters. All ranks have the same average, anchor and momentum, so they compute the
 * same. */
static tt_status after_bucket(const tt__flat *f, size_t bucket, void *user) {
    const diloco *d = user;
    for (size_t i = 0; i < f->count; i++) {
        const tt__flat_entry *e = &f->entries[i];
        if (e->bucket != bucket)
            continue;
        if (delta_of(d, i) != e->view)
            TT__TRY(tt__flat_copy(delta_of(d, i), e->view));
        run_outer_pass(d, i, outer_step_f32, outer_step_f64);
        TT__TRY(tt__flat_copy(e->param, d->base.slots[ANCHOR].views[i]));
    }
    return TT_OK;
}

static bool diloco_due(const tt_model_averager *a) { return (a->steps + 1) % ((const diloco *)a)->period == 0; }

static tt_status diloco_average(tt_model_averager *a, bool all) {
    (void)all;
    return tt__flat_average(&a->flat, a->group, a->cls->doing, before_bucket, after_bucket, a);
}

static void diloco_end(tt_model_averager *a) {
    diloco *d = (diloco *)a;
    for (size_t i = 0; d->scratch_views && i < a->flat.count; i++)
        tt__tensor_disown(d->scratch_views[i]);
    free(d->scratch_views);
    free(d->scratch);
}

static const tt__averager_class diloco_class = {
    .name = "tt_diloco",
    .doing = "the outer step of tt_diloco",
    .size = sizeof(diloco),
    .slots = DILOCO_SLOTS,
    .slot_names = diloco_slots,
    .due = diloco_due,
    .average = diloco_average,
    .end = diloco_end,
};

/* ---- making ---- */

static tt_status check_diloco(const tt_diloco_args *a) {
    const char *who = diloco_class.name;
    if (a->period < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a period of 1 step or more, got %" PRId64, who, a->period);
    if (!(a->outer_lr > 0) || !isfinite(a->outer_lr))
        return tt__fail(TT_ERR_INVALID, "%s: expected an outer_lr above 0, got %g", who, a->outer_lr);
    if (!(a->outer_momentum >= 0 && a->outer_momentum < 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected an outer_momentum of 0 to below 1, got %g", who,
                        a->outer_momentum);
    if (a->send_as != TT_F32 && a->send_as != TT_F16 && a->send_as != TT_BF16)
        return tt__fail(TT_ERR_INVALID, "%s: expected .send_as of TT_F16 or TT_BF16, or TT_F32 for neither, got %s",
                        who, tt_dtype_name(a->send_as));
    return TT_OK;
}

static tt_status make_scratch(diloco *d) {
    const tt__flat *f = &d->base.flat;
    int64_t largest = 0;
    for (size_t i = 0; i < f->count; i++)
        if (tt_tensor_numel(f->entries[i].view) > largest)
            largest = tt_tensor_numel(f->entries[i].view);
    d->scratch = malloc((size_t)largest * sizeof(double) + 1);
    d->scratch_views = calloc(f->count + 1, sizeof *d->scratch_views);
    if (!d->scratch || !d->scratch_views)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a parameter of %" PRId64 " elements", diloco_class.name,
                        largest);
    for (size_t i = 0; i < f->count; i++) {
        const tt_tensor *anchor = d->base.slots[ANCHOR].views[i];
        d->scratch_views[i] =
            tt__optim_hold(tt_from_blob(d->scratch, tt_tensor_shape(anchor), tt_tensor_dtype(anchor)));
        if (!d->scratch_views[i])
            return tt_last_status();
    }
    return TT_OK;
}

/* Set the anchor and all ranks' parameters to rank 0's, without the rounding of the type in which deltas are sent. */
static tt_status begin_anchor(const diloco *d) {
    const tt_model_averager *a = &d->base;
    const tt__averager_slot *anchor = &a->slots[ANCHOR];
    for (size_t i = 0; i < a->flat.count; i++)
        TT__TRY(tt__flat_copy(anchor->views[i], a->flat.entries[i].param));
    for (size_t b = 0; b < a->flat.bucket_count; b++)
        TT__TRY(tt_broadcast_with(TT_ARGS(
            tt_broadcast_args, .group = a->group, .buf = anchor->data[b], .count = a->flat.buckets[b].count,
            .dtype = a->flat.buckets[b].dtype == TT_F64 ? TT_F64 : TT_F32, .root = 0, .file = diloco_class.name)));
    for (size_t i = 0; i < a->flat.count; i++)
        TT__TRY(tt__flat_copy(a->flat.entries[i].param, anchor->views[i]));
    return TT_OK;
}

/* begin_anchor() by a back end that takes no memory of the host. */
static tt_status begin_anchor_far(const tt_model_averager *a) {
    for (size_t i = 0; i < a->flat.count; i++) {
        const tt__flat_entry *e = &a->flat.entries[i];
        TT__TRY(tt__ddp_take_one(a->group, e->name, e->param, 0));
        TT__TRY(tt__flat_copy(a->slots[ANCHOR].views[i], e->param));
    }
    return TT_OK;
}

static bool averages_far(const tt_model_averager *a) { return !tt__group_takes(a->group, TT_DEVICE_CPU); }

static tt_status begin_diloco(tt_model_averager *a, const tt_diloco_args *args) {
    diloco *d = (diloco *)a;
    d->period = args->period;
    d->lr = args->outer_lr;
    d->momentum = args->outer_momentum;
    if (args->send_as != TT_F32 || averages_far(a))
        TT__TRY(make_scratch(d));
    return averages_far(a) ? begin_anchor_far(a) : begin_anchor(d);
}

tt_status tt_diloco_with(const tt_diloco_args *given, size_t size) {
    tt_diloco_args args;
    char period[64], lr[64], momentum[64], send_as[64];
    TT__ARGS_COPY(args, given, size);
    snprintf(period, sizeof period, "period %" PRId64, args.period);
    tt__format(lr, sizeof lr, "outer_lr %.17g", args.outer_lr);
    tt__format(momentum, sizeof momentum, "outer_momentum %.17g", args.outer_momentum);
    snprintf(send_as, sizeof send_as, ".send_as %s", tt_dtype_name(args.send_as));
    tt__averager_plan plan = {
        &diloco_class, args.out,       args.group, args.params, (const char *const[]){period, lr, momentum, send_as}, 4,
        &args.send_as, {.group = NULL}};
    TT__TRY(tt__averager_agree(&plan));
    TT__TRY(check_diloco(&args));
    tt_model_averager *a;
    tt_status status = tt__averager_make(&plan, &a);
    if (!status)
        status = begin_diloco(a, &args);
    return tt__averager_finish(&plan, a, status);
}
