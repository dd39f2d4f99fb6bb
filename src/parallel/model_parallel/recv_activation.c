/* The receiving side: a leaf, whose hook sends the gradient. */
#include <stdatomic.h>
#include <stdlib.h>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "base/args.h"
#include "base/error.h"
#include "parallel/model_parallel/activation.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

#include <tutti/model_parallel.h>

static const char who[] = "tt_recv_activation";

/* Where a gradient goes. The leaf has one reference, a pass that sends another one. */
typedef struct way_back {
    _Atomic int refs;
    tt__stage_link link;
    int tag;
    int64_t notice;
    tt_tensor *leaf; /* while it is sent: a reference */
    tt_tensor *sent; /* the same, and in plain memory */
    tt_work *elements, *told;
} way_back;

static void way_back_unref(void *user) {
    way_back *w = user;
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) == 1)
        free(w);
}

/* ---- the gradient ---- */

static tt_status begin_gradient(way_back *w, tt_tensor *x) {
    tt_tensor *gradient = tt_grad(x), *zeros = gradient ? NULL : tt_zeros_like(x);
    w->sent = gradient || zeros ? tt__activation_plain(who, gradient ? gradient : zeros) : NULL;
    tt__abandon(zeros);
    if (!w->sent)
        return tt_last_status();
    TT__TRY(tt__stage_send(&w->link, w->sent->data, w->sent->numel, w->sent->dtype, w->tag, &w->elements));
    return tt__stage_send(&w->link, &w->notice, 1, TT_I64, w->tag + 1, &w->told);
}

static tt_status way_back_fail(const way_back *w, const tt_tensor *x) {
    return tt__fail_prefix("%s: the gradient of %s to rank %d", who, TT__DESCRIBE(x), tt__stage_peer(&w->link));
}

/* The pass ends, also by a failure: what was begun goes out, as the peer waits for it. */
static tt_status finish_gradient(void *user, tt_status pass) {
    way_back *w = user;
    tt_status status = tt__stage_finish(&w->elements);
    tt_status told = tt__stage_finish(&w->told);
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
                        "%s: %s got its gradient twice in one backward pass; run one pass after the other", who,
                        TT__DESCRIBE(x));
    TT__TRY(tt__backward_on_end(finish_gradient, w));
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
    w->leaf = tt__tensor_ref(x);
    return begin_gradient(w, x) ? way_back_fail(w, x) : TT_OK;
}

/* Make x a leaf whose gradients go back. */
static tt_status attach_way_back(tt_tensor *x, const tt__stage_link *link, int64_t tag) {
    way_back *w = calloc(1, sizeof *w);
    if (!w)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the gradient of %s", who, TT__DESCRIBE(x));
    *w = (way_back){.refs = 1, .link = *link, .tag = (int)tag};
    if (!tt_requires_grad_(x, true)) {
        free(w);
        return tt_last_status();
    }
    return tt_register_post_accumulate_grad_hook(x, send_gradient, w, .destroy = way_back_unref);
}

/* ---- forward ---- */

static tt_status recv_now(const tt__stage_link *link, void *data, int64_t count, tt_dtype dtype, int tag) {
    tt_work *work = NULL;
    TT__TRY(tt__stage_recv(link, data, count, dtype, tag, &work));
    return tt__stage_finish(&work);
}

/* Check what a peer says. */
static tt_status check_heading(const tt__activation_heading *h, int peer) {
    bool known = h->magic == TT__ACTIVATION && h->ndim >= 0 && h->ndim <= TT_MAX_DIMS && h->dtype >= TT_F32 &&
                 h->dtype <= TT_BOOL && h->gradient_tag >= -1 && h->gradient_tag < 2 * TT__GRADIENT_TAGS - 1;
    for (int d = 0; known && d < h->ndim; d++)
        known = h->dim[d] >= 0;
    return known ? TT_OK
                 : tt__fail(TT_ERR_MISMATCH, "rank %d sent something else than tt_send_activation() sends", peer);
}

static tt_status receive(const tt__stage_link *link, int tag, tt__activation_heading *h, tt_tensor **x) {
    TT__TRY(recv_now(link, h, TT__HEADING_WORDS, TT_I64, tag));
    TT__TRY(check_heading(h, tt__stage_peer(link)));
    tt_shape shape = {.ndim = (int)h->ndim};
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = h->dim[d];
    *x = tt__tensor_new(who, shape, (tt_dtype)h->dtype);
    return *x ? recv_now(link, (*x)->data, (*x)->numel, (*x)->dtype, tag) : tt_last_status();
}

/* Move x, which goes, to a device. */
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
    const tt__stage_link link = {a.group, a.peer, a.timeout_ms, a.file ? a.file : who, a.line};
    if (tt__stage_link_check(who, &link, a.tag))
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    tt__activation_heading heading = {0};
    tt_tensor *x = NULL;
    tt_status status = receive(&link, a.tag, &heading, &x);
    if (status) {
        tt__abandon(x);
        status = tt__fail_prefix("%s from rank %d", who, tt__stage_peer(&link));
        return tt__tensor_fail(status, "%s", tt_last_error());
    }
    x = to_place(x, a.device);
    if (!x || heading.gradient_tag < 0 || !tt__is_recording())
        return x;
    status = attach_way_back(x, &link, heading.gradient_tag);
    return status ? (tt__abandon(x), tt__tensor_fail(status, "%s", tt_last_error())) : x;
}
