/* Activations between the stages of a model: tt_send_activation() and tt_recv_activation(). What passes between two:
 *
 *   sender                                receiver
 *   heading   ------- tag ------------->  tells what follows
 *   elements  ------- tag ------------->
 *   elements  <------ gradient's tag ---  received into memory that waits for them from the beginning
 *   notice    <------ the next tag -----  small, behind them: what a sender's backward waits for
 *
 * The sender chooses the gradient's tag, another one for each activation, so that gradients may come in any order.
 * Memory for a gradient waits for it, so a receiver can send it whatever the sender does meanwhile. */
#include "autograd/backward.h"
#include "autograd/node.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

#include <tutti/autograd.h>
#include <tutti/comm.h>
#include <tutti/model_parallel.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Tags from here on are those of gradients. */
#define GRADIENT_TAGS ((int64_t)1 << 30)

typedef struct activation_heading {
    int64_t magic; /* ACTIVATION_MAGIC */
    int64_t dtype;
    int64_t gradient_tag; /* -1: no gradient is wanted */
    int64_t ndim;
    int64_t dim[TT_MAX_DIMS];
} activation_heading;

enum { HEADING_WORDS = sizeof(activation_heading) / sizeof(int64_t), ACTIVATION_MAGIC = 0x54744163 };

/* The other end of a call, how long to wait for it, and where the call was made. */
typedef struct stage_link {
    tt_group *group;
    int peer; /* in the group; errors have its number in the job */
    int64_t timeout_ms;
    const char *file;
    int line;
} stage_link;

/* TT_ERR_INVALID: `link` or `tag` can't be used. */
static tt_status stage_link_check(const char *who, const stage_link *link, int tag) {
    int ranks = tt_get_world_size(link->group);
    if (!link->group)
        return tt__fail(TT_ERR_INVALID, "%s: `group` is NULL", who);
    if (link->peer < 0 || link->peer >= ranks || link->peer == tt_get_rank(link->group))
        return tt__fail(TT_ERR_INVALID, "%s: expected another rank of the %d, got %d on rank %d", who, ranks,
                        link->peer, tt_get_rank(link->group));
    if (tag < 0 || tag >= GRADIENT_TAGS)
        return tt__fail(TT_ERR_INVALID, "%s: expected a tag from 0 to %lld, got %d", who, (long long)GRADIENT_TAGS - 1,
                        tag);
    return TT_OK;
}

/* The peer's number in the job. */
static int stage_peer(const stage_link *link) { return tt_get_global_rank(link->group, link->peer); }

/* Begin to send / to receive; *work is the caller's. */
static tt_status stage_send(const stage_link *link, const void *data, int64_t count, tt_dtype dtype, int tag,
                            tt_work **work) {
    tt_send_args args = {.group = link->group,
                         .buf = data,
                         .count = count,
                         .dtype = dtype,
                         .peer = link->peer,
                         .tag = tag,
                         .work = work,
                         .timeout_ms = link->timeout_ms,
                         .file = link->file,
                         .line = link->line};
    return tt_send_with(&args, offsetof(tt_send_args, tt_end));
}

static tt_status stage_recv(const stage_link *link, void *data, int64_t count, tt_dtype dtype, int tag,
                            tt_work **work) {
    tt_recv_args args = {.group = link->group,
                         .buf = data,
                         .count = count,
                         .dtype = dtype,
                         .peer = link->peer,
                         .tag = tag,
                         .work = work,
                         .timeout_ms = link->timeout_ms,
                         .file = link->file,
                         .line = link->line};
    return tt_recv_with(&args, offsetof(tt_recv_args, tt_end));
}

/* Wait for the work, and free it, also after an error. *work NULL: TT_OK. */
static tt_status stage_finish(tt_work **work) {
    tt_status status = *work ? tt_work_wait(*work) : TT_OK;
    tt_work_free(*work);
    *work = NULL;
    return status;
}

static tt_status recv_now(const stage_link *link, void *data, int64_t count, tt_dtype dtype, int tag) {
    tt_work *work = NULL;
    TT__TRY(stage_recv(link, data, count, dtype, tag, &work));
    return stage_finish(&work);
}

/* x as a contiguous tensor of the host without history, over x's storage or a copy's. The caller has its one reference.
 * NULL: no memory. */
static tt_tensor *activation_plain(const char *who, tt_tensor *x) {
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    tt_tensor *plain = x;
    if (!tt_is_contiguous(x) || !tt__device_is_host(tt_tensor_device(x)))
        plain = tt_contiguous(tt_to_device(x, tt_device_get("cpu")));
    tt_tensor *kept = plain ? tt__tensor_detached(who, plain) : NULL;
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    return kept;
}

/* ---- the sending side: forward sends, backward receives ----
 *
 * A parcel is what is under way. It lives until the record is gone and all its messages are done, so neither a record
 * that is never walked nor a group that fails leaves a message without its memory.
 *
 * A sender waits PATIENCE_NS for its peer to take a large activation, and then leaves it to later calls, so two ranks
 * that send to each other go on. */

static const char send_who[] = "tt_send_activation";

/* How long a call waits for its peer to take a large tensor before it leaves that to later calls, and how it waits. */
static const int64_t PATIENCE_NS = 100000000, YIELD_NS = 1000000;

typedef struct parcel {
    _Atomic int refs;
    stage_link link;
    activation_heading heading;
    tt_tensor *x;        /* while it is sent: contiguous, on the host */
    tt_shape shape;      /* of x */
    tt_tensor *gradient; /* memory that waits for it; or NULL */
    tt_work *work;       /* receives the gradient */
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

/* The elements were sent, so their memory can go. A record that is never walked then keeps only that of the
 * gradient. */
static void on_elements_done(tt_status status, int source, void *user) {
    (void)status, (void)source;
    parcel *p = user;
    tt__tensor_unref(p->x);
    p->x = NULL;
    parcel_unref(p);
}

/* Let the message keep the parcel until it is done; for ever, if there is no memory for the callback. */
static tt_status keep_for(parcel *p, tt_work *work, void (*done)(tt_status, int, void *)) {
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return tt_work_add_done_callback(work, done, p);
}

static int next_gradient_tag(void) {
    static _Atomic uint32_t number;
    uint32_t n = atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
    return (int)(GRADIENT_TAGS + (int64_t)(n % (1u << 29)) * 2);
}

static tt_status begin_heading(parcel *p, int tag, tt_work **work) {
    TT__TRY(stage_send(&p->link, &p->heading, HEADING_WORDS, TT_I64, tag, work));
    return keep_for(p, *work, on_message_done);
}

static tt_status begin_elements(parcel *p, int tag, tt_work **work) {
    TT__TRY(stage_send(&p->link, p->x->data, p->x->numel, p->x->dtype, tag, work));
    return keep_for(p, *work, on_elements_done);
}

/* Begin to receive the gradient. It has no deadline of its own, as the notice has one. */
static tt_status await_gradient(parcel *p) {
    tt_tensor *room = tt__tensor_new(send_who, p->shape, (tt_dtype)p->heading.dtype);
    if (!room)
        return tt_last_status();
    p->gradient = tt__tensor_detached(send_who, room);
    tt__abandon(room);
    if (!p->gradient)
        return tt_last_status();
    stage_link link = p->link;
    link.timeout_ms = INT64_MAX;
    TT__TRY(stage_recv(&link, p->gradient->data, p->gradient->numel, p->gradient->dtype, (int)p->heading.gradient_tag,
                       &p->work));
    return keep_for(p, p->work, on_message_done);
}

/* Wait for a peer that is ready, but not for one that waits for this rank. */
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
    else if (!status) /* no backward pass will wait for it */
        status = tt_work_wait(elements);
    tt_work_free(heading);
    tt_work_free(elements);
    return status;
}

/* ---- sending: backward ---- */

/* Wait until the peer says that the gradient is under way, then for the gradient. */
static tt_status receive_gradient(parcel *p) {
    int64_t notice = 0;
    TT__TRY(recv_now(&p->link, &notice, 1, TT_I64, (int)p->heading.gradient_tag + 1));
    return stage_finish(&p->work);
}

static tt_status send_activation_backward(tt_node *node) {
    parcel *p = *(parcel **)tt__state(node);
    tt_status status = p->gradient ? TT_OK : await_gradient(p);
    if (!status)
        status = receive_gradient(p);
    if (status) {
        const tt_tensor sent = {.dtype = (tt_dtype)p->heading.dtype, .shape = p->shape};
        return tt__fail_prefix("%s: the gradient of %s from rank %d", send_who, TT__DESCRIBE(&sent),
                               stage_peer(&p->link));
    }
    tt_tensor *gradient = p->gradient;
    p->gradient = NULL; /* another pass receives its own */
    const tt_device *device = node->edge[0].device;
    tt_tensor *there = tt__device_of(gradient) == device ? gradient : tt__to_device(send_who, gradient, device);
    status = tt__grad_give(node, 0, there);
    tt__tensor_unref(gradient);
    return status;
}

/* The record is freed; its work may go on. */
static void send_activation_destroy(void *state) {
    parcel *p = *(parcel **)state;
    tt_work_free(p->work);
    p->work = NULL;
    parcel_unref(p);
}

static const tt__operator send_activation_op = {
    .name = send_who, .backward = send_activation_backward, .destroy = send_activation_destroy};

/* ---- sending: forward ---- */

static parcel *parcel_new(const tt_send_activation_args *a) {
    parcel *p = calloc(1, sizeof *p);
    if (!p)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory to send %s", send_who, TT__DESCRIBE(a->x));
    p->refs = 1;
    p->link = (stage_link){a->group, a->peer, a->timeout_ms, a->file ? a->file : send_who, a->line};
    p->x = activation_plain(send_who, a->x);
    if (!p->x)
        return parcel_unref(p), NULL;
    p->shape = p->x->shape;
    p->heading = (activation_heading){.magic = ACTIVATION_MAGIC,
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
    if (!a.x || !tt__tensor_check(send_who, a.x))
        return NULL;
    const stage_link link = {.group = a.group, .peer = a.peer};
    tt_status status = stage_link_check(send_who, &link, a.tag);
    parcel *p = status ? NULL : parcel_new(&a);
    if (!p)
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    if (!send_parcel(p, a.tag))
        return send_recorded(p, a.x);
    status = tt__fail_prefix("%s of %s to rank %d", send_who, TT__DESCRIBE(a.x), stage_peer(&p->link));
    send_activation_destroy(&p);
    return tt__tensor_fail(status, "%s", tt_last_error());
}

/* ---- the receiving side: makes a leaf, whose hook sends the gradient ---- */

static const char recv_who[] = "tt_recv_activation";

/* The way of a gradient to the sender. The leaf has a reference, and so has a pass that sends. */
typedef struct way_back {
    _Atomic int refs;
    stage_link link;
    int tag;
    int64_t notice;
    tt_tensor *leaf; /* while it is sent: a reference */
    tt_tensor *sent; /* its gradient in plain memory, while it is sent */
    tt_work *elements, *told;
} way_back;

static void way_back_unref(void *user) {
    way_back *w = user;
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) == 1)
        free(w);
}

static tt_status begin_gradient(way_back *w, tt_tensor *x) {
    tt_tensor *gradient = tt_grad(x), *zeros = gradient ? NULL : tt_zeros_like(x);
    w->sent = gradient || zeros ? activation_plain(recv_who, gradient ? gradient : zeros) : NULL;
    tt__abandon(zeros);
    if (!w->sent)
        return tt_last_status();
    TT__TRY(stage_send(&w->link, w->sent->data, w->sent->numel, w->sent->dtype, w->tag, &w->elements));
    return stage_send(&w->link, &w->notice, 1, TT_I64, w->tag + 1, &w->told);
}

static tt_status way_back_fail(const way_back *w, const tt_tensor *x) {
    return tt__fail_prefix("%s: the gradient of %s to rank %d", recv_who, TT__DESCRIBE(x), stage_peer(&w->link));
}

/* The pass has ended, perhaps by a failure: finish sending, as the peer waits. */
static tt_status finish_gradient(void *user, tt_status pass) {
    way_back *w = user;
    tt_status status = stage_finish(&w->elements);
    tt_status told = stage_finish(&w->told);
    status = status ? status : told;
    if (status && !pass)
        status = way_back_fail(w, w->leaf);
    tt_zero_grad(w->leaf);
    tt__tensor_unref(w->sent);
    tt__tensor_unref(w->leaf);
    w->sent = w->leaf = NULL;
    way_back_unref(w);
    return pass ? pass : status;
}

static tt_status send_gradient(tt_tensor *x, void *user) {
    way_back *w = user;
    if (w->leaf)
        return tt__fail(TT_ERR_STATE,
                        "%s: %s got its gradient twice in one backward pass; run one pass after the other", recv_who,
                        TT__DESCRIBE(x));
    TT__TRY(tt__backward_on_end(finish_gradient, w));
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
    w->leaf = tt__tensor_ref(x);
    return begin_gradient(w, x) ? way_back_fail(w, x) : TT_OK;
}

/* Make x a leaf whose gradients go back. */
static tt_status attach_way_back(tt_tensor *x, const stage_link *link, int64_t tag) {
    way_back *w = calloc(1, sizeof *w);
    if (!w)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the gradient of %s", recv_who, TT__DESCRIBE(x));
    *w = (way_back){.refs = 1, .link = *link, .tag = (int)tag};
    if (!tt_requires_grad_(x, true)) {
        free(w);
        return tt_last_status();
    }
    return tt_register_post_accumulate_grad_hook(x, send_gradient, w, .destroy = way_back_unref);
}

/* ---- receiving: forward ---- */

/* Check a heading, which came from another process. */
static tt_status check_heading(const activation_heading *h, int peer) {
    bool known = h->magic == ACTIVATION_MAGIC && h->ndim >= 0 && h->ndim <= TT_MAX_DIMS && h->dtype >= TT_F32 &&
                 h->dtype <= TT_BOOL && h->gradient_tag >= -1 && h->gradient_tag < 2 * GRADIENT_TAGS - 1;
    for (int d = 0; known && d < h->ndim; d++)
        known = h->dim[d] >= 0;
    return known ? TT_OK
                 : tt__fail(TT_ERR_MISMATCH, "rank %d sent something else than tt_send_activation() sends", peer);
}

static tt_status receive(const stage_link *link, int tag, activation_heading *h, tt_tensor **x) {
    TT__TRY(recv_now(link, h, HEADING_WORDS, TT_I64, tag));
    TT__TRY(check_heading(h, stage_peer(link)));
    tt_shape shape = {.ndim = (int)h->ndim};
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = h->dim[d];
    *x = tt__tensor_new(recv_who, shape, (tt_dtype)h->dtype);
    return *x ? recv_now(link, (*x)->data, (*x)->numel, (*x)->dtype, tag) : tt_last_status();
}

/* Move x to a device, and abandon the original. */
static tt_tensor *to_place(tt_tensor *x, const tt_device *device) {
    if (!device || device == tt_tensor_device(x))
        return x;
    tt_tensor *there = tt_to_device(x, device);
    tt__abandon(x);
    return there;
}

tt_tensor *tt_recv_activation_with(const tt_recv_activation_args *args, size_t size) {
    tt_recv_activation_args a;
    TT__ARGS_COPY(a, args, size);
    const stage_link link = {a.group, a.peer, a.timeout_ms, a.file ? a.file : recv_who, a.line};
    if (stage_link_check(recv_who, &link, a.tag))
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    activation_heading heading = {0};
    tt_tensor *x = NULL;
    tt_status status = receive(&link, a.tag, &heading, &x);
    if (status) {
        tt__abandon(x);
        status = tt__fail_prefix("%s from rank %d", recv_who, stage_peer(&link));
        return tt__tensor_fail(status, "%s", tt_last_error());
    }
    x = to_place(x, a.device);
    if (!x || heading.gradient_tag < 0 || !tt__is_recording())
        return x;
    status = attach_way_back(x, &link, heading.gradient_tag);
    return status ? (tt__abandon(x), tt__tensor_fail(status, "%s", tt_last_error())) : x;
}
