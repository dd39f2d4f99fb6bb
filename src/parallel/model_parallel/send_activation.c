/* The sending side: forward sends, backward receives.
 *
 * A parcel is what is under way: it lives until the record is gone and all its messages are done, so that neither a
 * record that is never walked nor a group that fails leaves a message without its memory.
 *
 * A sender waits PATIENCE_NS for a large activation to be taken, and then leaves it to later calls. So two ranks that
 * send to each other go on. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "parallel/model_parallel/activation.h"
#include "tensor/core/tensor.h"

#include <tutti/model_parallel.h>

static const char who[] = "tt_send_activation";

/* How long a call waits for its peer to take a large tensor before it leaves that to later calls, and how it waits. */
static const int64_t PATIENCE_NS = 100000000, YIELD_NS = 1000000;

typedef struct parcel {
    _Atomic int refs;
    tt__stage_link link;
    tt__activation_heading heading;
    tt_tensor *x;        /* while it is sent: contiguous, on the host */
    tt_shape shape;      /* of it */
    tt_tensor *gradient; /* receives it; NULL: nothing waits for it now */
    tt_work *work;       /* of the gradient */
} parcel;

static void parcel_unref(parcel *p) {
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    tt__tensor_unref(p->x);
    tt__tensor_unref(p->gradient);
    free(p);
}

static void on_message_done(tt_status status, int source, void *user) {
    (void)status, (void)source;
    parcel_unref(user);
}

/* The elements are with the peer: a record that is never walked keeps room for a gradient alone. */
static void on_elements_done(tt_status status, int source, void *user) {
    (void)status, (void)source;
    parcel *p = user;
    tt__tensor_unref(p->x);
    p->x = NULL;
    parcel_unref(p);
}

/* The message keeps the parcel until it is done: for ever, where there is no memory to be told of that. */
static tt_status keep_for(parcel *p, tt_work *work, void (*done)(tt_status, int, void *)) {
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return tt_work_add_done_callback(work, done, p);
}

static int next_gradient_tag(void) {
    static _Atomic uint32_t number;
    uint32_t n = atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
    return (int)(TT__GRADIENT_TAGS + (int64_t)(n % (1u << 29)) * 2);
}

static tt_status begin_heading(parcel *p, int tag, tt_work **work) {
    TT__TRY(tt__stage_send(&p->link, &p->heading, TT__HEADING_WORDS, TT_I64, tag, work));
    return keep_for(p, *work, on_message_done);
}

static tt_status begin_elements(parcel *p, int tag, tt_work **work) {
    TT__TRY(tt__stage_send(&p->link, p->x->data, p->x->numel, p->x->dtype, tag, work));
    return keep_for(p, *work, on_elements_done);
}

/* Have memory wait for the gradient, without a deadline: that of its notice counts. */
static tt_status await_gradient(parcel *p) {
    tt_tensor *room = tt__tensor_new(who, p->shape, (tt_dtype)p->heading.dtype);
    if (!room)
        return tt_last_status();
    p->gradient = tt__tensor_detached(who, room);
    tt__abandon(room);
    if (!p->gradient)
        return tt_last_status();
    tt__stage_link link = p->link;
    link.timeout_ms = INT64_MAX;
    TT__TRY(tt__stage_recv(&link, p->gradient->data, p->gradient->numel, p->gradient->dtype,
                           (int)p->heading.gradient_tag, &p->work));
    return keep_for(p, p->work, on_message_done);
}

/* Wait for a while: a peer that is ready has it then, and one that itself waits for us won't keep us. */
static void wait_a_while(tt_work *work) {
    int64_t begin = tt__now_ns(), waited = 0;
    while (!tt_work_is_completed(work) && waited < PATIENCE_NS) {
        if (waited < YIELD_NS)
            sched_yield();
        else
            tt__sleep_us(50);
        waited = tt__now_ns() - begin;
    }
}

static tt_status send_parcel(parcel *p, int tag) {
    tt_work *heading = NULL, *elements = NULL;
    bool wants = p->heading.gradient_tag >= 0;
    tt_status status = wants ? await_gradient(p) : TT_OK;
    if (!status)
        status = begin_heading(p, tag, &heading);
    if (!status)
        status = begin_elements(p, tag, &elements);
    if (!status && wants)
        wait_a_while(elements);
    else if (!status) /* no backward will tell how it ended, nor keep the caller from leaving the group */
        status = tt_work_wait(elements);
    tt_work_free(heading);
    tt_work_free(elements);
    return status;
}

/* ---- backward ---- */

/* Wait until the peer says that the gradient is under way, then for the gradient. */
static tt_status receive_gradient(parcel *p) {
    int64_t notice = 0;
    tt_work *work = NULL;
    TT__TRY(tt__stage_recv(&p->link, &notice, 1, TT_I64, (int)p->heading.gradient_tag + 1, &work));
    tt_status status = tt__stage_finish(&work); /* an error ends the work, too: `notice` is free */
    return status ? status : tt__stage_finish(&p->work);
}

static tt_status send_activation_backward(tt_node *node) {
    parcel *p = *(parcel **)tt__state(node);
    tt_status status = p->gradient ? TT_OK : await_gradient(p);
    if (!status)
        status = receive_gradient(p);
    if (status) {
        const tt_tensor sent = {.dtype = (tt_dtype)p->heading.dtype, .shape = p->shape};
        return tt__fail_prefix("%s: the gradient of %s from rank %d", who, TT__DESCRIBE(&sent),
                               tt__stage_peer(&p->link));
    }
    tt_tensor *gradient = p->gradient;
    p->gradient = NULL; /* another pass has its own */
    const tt_device *device = node->edge[0].device;
    tt_tensor *there = tt__device_of(gradient) == device ? gradient : tt__to_device(who, gradient, device);
    status = tt__grad_give(node, 0, there);
    tt__tensor_unref(gradient);
    return status;
}

/* The record is gone. Its work goes on without an owner. */
static void send_activation_destroy(void *state) {
    parcel *p = *(parcel **)state;
    tt_work_free(p->work);
    p->work = NULL;
    parcel_unref(p);
}

static const tt__operator send_activation_op = {
    .name = who, .backward = send_activation_backward, .destroy = send_activation_destroy};

/* ---- forward ---- */

static parcel *parcel_new(const tt_send_activation_args *a) {
    parcel *p = calloc(1, sizeof *p);
    if (!p)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory to send %s", who, TT__DESCRIBE(a->x));
    p->refs = 1;
    p->link = (tt__stage_link){a->group, a->peer, a->timeout_ms, a->file ? a->file : who, a->line};
    p->x = tt__activation_plain(who, a->x);
    if (!p->x)
        return parcel_unref(p), NULL;
    p->shape = p->x->shape;
    p->heading = (tt__activation_heading){.magic = TT__ACTIVATION,
                                          .dtype = p->x->dtype,
                                          .gradient_tag = tt__wants_grad(1, &a->x) ? next_gradient_tag() : -1,
                                          .ndim = p->x->shape.ndim};
    for (int d = 0; d < p->x->shape.ndim; d++)
        p->heading.dim[d] = p->x->shape.dim[d];
    return p;
}

static tt_tensor *send_recorded(parcel *p, tt_tensor *x) {
    tt_tensor *zero = tt_zeros(TT_SCALAR, TT_F32);
    if (p->heading.gradient_tag < 0 || !zero) {
        send_activation_destroy(&p);
        return zero;
    }
    zero = tt__recorded(&send_activation_op, zero, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(p));
    if (!zero)
        send_activation_destroy(&p);
    return zero;
}

tt_tensor *tt_send_activation_with(const tt_send_activation_args *args, size_t size) {
    tt_send_activation_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !tt__tensor_check(who, a.x))
        return NULL;
    const tt__stage_link link = {.group = a.group, .peer = a.peer};
    tt_status status = tt__stage_link_check(who, &link, a.tag);
    parcel *p = status ? NULL : parcel_new(&a);
    if (!p)
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    if (!send_parcel(p, a.tag))
        return send_recorded(p, a.x);
    status = tt__fail_prefix("%s of %s to rank %d", who, TT__DESCRIBE(a.x), tt__stage_peer(&p->link));
    send_activation_destroy(&p);
    return tt__tensor_fail(status, "%s", tt_last_error());
}
