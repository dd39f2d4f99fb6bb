/* Parameters on a device. Each bucket of the reducer has a twin there of the same layout, in which the gradients lie.
 * Where the ranks reach each other's devices (device_peers.h), each adds up its share of all twins where they lie, when
 * all gradients of the bucket are there, and writes the averages to all. Otherwise, and for hooks, one copy brings the
 * gradients to the bucket, beside the rest of the backward pass; it is averaged on the host, and another copy brings
 * the averages back. Both add in the one order of docs/collectives.md. Marks and what hooks do stay on the host.
 *
 * Bytes from and to the host a step: none, or those of the gradients, once in each direction. */
#include "parallel/ddp/ddp_device.h"

#include "autograd/leaf.h"
#include "base/error.h"
#include "base/log.h"
#include "parallel/carried.h"
#include "parallel/ddp/ddp_names.h"
#include "parallel/device_peers.h"
#include "reducer/text_agreement.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct twin {
    void *data, *bucket; /* on the device, and on the host */
    size_t bytes;        /* of gradients */
    void *mark;          /* of the copy to the bucket, or of the sum, that is under way; NULL: there is none */
    bool sent, pinned;   /* it was copied; its bucket is pinned since */
    bool reached;        /* by all ranks, as they reach theirs: */
    void *of[TT__DEVICE_PEERS];
    bool lent; /* other ranks may be writing to it */
} twin;

struct tt__ddp_twins {
    struct tt__ddp_twins *old; /* of the buckets before; or NULL */
    const tt_device *device;
    size_t count;
    twin list[];
};

/* ---- where ---- */

static bool is_averaged(const tt__ddp *d, const tt_named_tensors *list, int64_t i) {
    return tt_requires_grad(list->tensors[i]) && !tt__ddp_is_named(d->ignored, list->names[i]);
}

tt_status tt__ddp_check_devices(const tt__ddp *d, const tt_named_tensors *list) {
    int64_t first = -1;
    for (int64_t i = 0; i < list->count; i++) {
        const tt_tensor *x = list->tensors[i];
        if (!is_averaged(d, list, i))
            continue;
        if (first < 0)
            first = i;
        if (tt_tensor_device(x) != tt_tensor_device(list->tensors[first]))
            return tt__fail(TT_ERR_INVALID,
                            "%s: parameter \"%s\" lies on %s, and \"%s\" on %s; expected all that are averaged on one "
                            "device: wrap the parts by themselves, or move them",
                            DDP_SITE, list->names[first], tt_device_name(tt_tensor_device(list->tensors[first])),
                            list->names[i], tt_device_name(tt_tensor_device(x)));
    }
    return TT_OK;
}

const tt_device *tt__ddp_far_device(const tt__ddp *d) { return d->twins ? d->twins->device : NULL; }

void *tt__ddp_gradient_place(const tt__ddp *d, size_t i) {
    const tt__reducer_param *p = &d->reducer->params[i];
    if (!d->twins)
        return p->gradient;
    const twin *t = &d->twins->list[p->bucket];
    return (char *)t->data + ((char *)p->gradient - (char *)t->bucket);
}

tt_status tt__ddp_bring_gradient(const tt__ddp_slot *s) {
    tt__ddp *d = s->owner;
    return d->twins ? d->reducer->mirror->read(d, s->index, d->reducer->params[s->index].gradient) : TT_OK;
}

tt_status tt__ddp_clear_gradient(const tt__ddp_slot *s) {
    const tt__reducer_param *p = &s->owner->reducer->params[s->index];
    if (!tt__device_is_host(tt_tensor_device(s->parameter)))
        return tt__fill_out(DDP_SITE, tt__leaf_of(s->parameter)->grad, 0);
    memset(p->gradient, 0, p->bytes);
    return TT_OK;
}

/* ---- what the reducer asks for ---- */

static bool twin_reaches(void *user, size_t bucket) {
    const tt__ddp *d = user;
    return d->twins->list[bucket].reached && !d->reducer->hook && !d->sums_shards;
}

static tt_status twin_send(void *user, size_t bucket) {
    const tt__ddp *d = user;
    const tt_device *device = d->twins->device;
    twin *t = &d->twins->list[bucket];
    if (twin_reaches(user, bucket)) {
        t->lent = true; /* when this rank joins the call that says so: the others may begin behind that */
        return device->queue->mark(device, &t->mark);
    }
    if (!t->bytes || d->sums_shards) /* all its parameters have sparse gradients; or they came one by one */
        return TT_OK;
    if (!t->sent)
        t->pinned = tt__pin_for_copies(device, t->bucket, t->bytes);
    t->sent = true;
    if (!device->queue)
        return device->to_host(device, t->bucket, t->data, t->bytes);
    return device->queue->send(device, t->bucket, t->data, t->bytes, &t->mark);
}

static tt_status twin_sent(void *user, size_t bucket, bool wait, bool *done) {
    const tt__ddp *d = user;
    const tt_device *device = d->twins->device;
    twin *t = &d->twins->list[bucket];
    *done = true;
    if (!t->mark)
        return TT_OK;
    tt_status status = device->queue->sent(device, t->mark, wait, done);
    if (*done || status)
        t->mark = NULL;
    return status;
}

static tt_status twin_sum(void *user, size_t bucket) {
    const tt__ddp *d = user;
    twin *t = &d->twins->list[bucket];
    const tt__reducer_bucket *b = &d->reducer->buckets[bucket];
    return tt__device_peers_sum(d->peers, t->of, b->gradients, b->dtype, true, &t->mark);
}

static tt_status twin_receive(void *user, size_t bucket) {
    const tt__ddp *d = user;
    const tt_device *device = d->twins->device;
    twin *t = &d->twins->list[bucket];
    if (twin_reaches(user, bucket)) {
        t->lent = false;
        return TT_OK;
    }
    if (!t->bytes || (d->watcher && d->watcher->takes_all))
        return TT_OK;
    return device->queue ? device->queue->receive(device, t->data, t->bucket, t->bytes)
                         : device->from_host(device, t->data, t->bucket, t->bytes);
}

/* What the program never sees needs no copy: a gradient that isn't there counts as zero. */
static tt_status twin_read(void *user, size_t i, void *to) {
    const tt__ddp *d = user;
    const tt_device *device = d->twins->device;
    size_t bytes = d->reducer->params[i].bytes;
    if (tt_grad(d->slots[i].parameter))
        return device->to_host(device, to, tt__ddp_gradient_place(d, i), bytes);
    memset(to, 0, bytes);
    return TT_OK;
}

static tt_status twin_write(void *user, size_t i, const void *from) {
    const tt__ddp *d = user;
    const tt_device *device = d->twins->device;
    return device->queue->receive(device, tt__ddp_gradient_place(d, i), from, d->reducer->params[i].bytes);
}

static const tt__reducer_mirror twins_mirror = {.send = twin_send,
                                                .sent = twin_sent,
                                                .receive = twin_receive,
                                                .reaches = twin_reaches,
                                                .sum = twin_sum,
                                                .read = twin_read,
                                                .write = twin_write};

/* ---- life ---- */

static tt_status make_twin(const tt_device *device, const tt__reducer_bucket *b, twin *t) {
    *t = (twin){.bucket = b->data, .bytes = b->gradients * tt_dtype_size(b->dtype)};
    t->data = device->alloc(device, t->bytes ? t->bytes : 1);
    if (!t->data)
        return tt_last_status();
    return device->from_host(device, t->data, t->bucket, t->bytes); /* zeros, of which those between gradients stay */
}

static void free_twin(const tt_device *device, twin *t) {
    bool done;
    if (t->mark)
        tt_ignore(device->queue->sent(device, t->mark, true, &done));
    if (t->pinned)
        device->queue->unpin(device, t->bucket);
    if (!t->lent) /* what another rank of a failed step may yet write to is nobody's any more */
        device->free(device, t->data);
}

static void twins_free(tt__ddp_twins *twins) {
    if (!twins)
        return;
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    twins_free(twins->old);
    tt_ignore(tt_device_synchronize(twins->device)); /* copies from the buckets have ended then, or never will */
    for (size_t b = 0; b < twins->count; b++)
        if (twins->list[b].data)
            free_twin(twins->device, &twins->list[b]);
    free(twins);
    tt__error_restore_reason(&saved);
}

/* Collective. A rank that failed before has aborted the group. */
static tt_status lend_twins(const tt__ddp *d, tt__ddp_twins *twins) {
    size_t reached = 0;
    for (size_t b = 0; b < twins->count && d->peers; b++) {
        twin *t = &twins->list[b];
        if (t->bytes)
            TT__TRY(tt__device_peers_reach(d->peers, t->data, t->bytes, DDP_SITE, t->of, &t->reached));
        reached += t->reached;
    }
    tt__log(TT_LOG_INFO,
            DDP_SITE ": the gradients of %zu of %zu buckets are averaged on the devices, the others' on the "
                     "host",
            reached, twins->count);
    return TT_OK;
}

static tt_status fill_twins(const tt__ddp *d, tt__ddp_twins *twins) {
    for (; twins->count < d->reducer->bucket_count; twins->count++)
        if (make_twin(twins->device, &d->reducer->buckets[twins->count], &twins->list[twins->count])) {
            twins->count++;
            return tt__fail_prefix("%s: bucket %zu of %zu", DDP_SITE, twins->count, d->reducer->bucket_count);
        }
    return TT_OK;
}

tt_status tt__ddp_meet_peers(tt__ddp *d, const tt_device *device) {
    return d->reducer->place || d->peers ? TT_OK : tt__device_peers_make(&d->peers, d->group, device, DDP_SITE);
}

tt_status tt__ddp_make_twins(tt__ddp *d, const tt_device *device) {
    if (tt__device_is_host(device) || d->reducer->place)
        return TT_OK;
    tt__ddp_twins *twins = calloc(1, sizeof *twins + d->reducer->bucket_count * sizeof *twins->list);
    if (!twins)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu buckets", DDP_SITE, d->reducer->bucket_count);
    twins->device = device;
    tt_status status = fill_twins(d, twins);
    if (!status)
        status = lend_twins(d, twins);
    if (status) {
        twins_free(twins);
        return status;
    }
    twins->old = d->twins;
    d->twins = twins;
    d->reducer->mirror = &twins_mirror;
    d->reducer->mirror_user = d;
    return TT_OK;
}

void tt__ddp_drop_old_twins(tt__ddp *d) {
    if (!d->twins)
        return;
    twins_free(d->twins->old);
    d->twins->old = NULL;
}

void tt__ddp_free_twins(tt__ddp *d) {
    twins_free(d->twins);
    d->twins = NULL;
    tt__device_peers_free(d->peers);
    d->peers = NULL;
}
