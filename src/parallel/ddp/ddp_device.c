/* Gradients on a device, in one of two ways.
 *
 * Twins: each bucket of the reducer has a twin on the device, of the same layout, in which the gradients lie. If the
 * ranks reach each other's devices (device_peers.h), each rank adds up its share of all ranks' twins when all gradients
 * of the bucket are there, and writes the averages to all. Otherwise, and for hooks, one copy brings the gradients to
 * the bucket, beside the rest of the backward pass; it is averaged on the host, and another copy brings the averages
 * back. Both add in the one order of docs/collectives.md. Marks and hooks stay on the host. Bytes from and to the host
 * a step: none, or those of the gradients, once in each direction.
 *
 * A place: if the group's back end takes the device's memory, the buckets themselves lie there. A bucket's call stands
 * behind the work on the device's stream so far, and runs beside the rest of the backward pass; the stream waits for
 * its result. The host waits for the device in two cases: for the step before the last; and in steps in which a
 * parameter got no gradient here, to learn what the other ranks say of that parameter. Bytes from and to the host a
 * step: one element for each parameter. */
#include "parallel/ddp/ddp_state.h"

#include "autograd/leaf.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "parallel/carried.h"
#include "parallel/device_peers.h"
#include "tensor/device/device.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct twin {
    void *data, *bucket; /* on the device, and on the host */
    size_t bytes;        /* of gradients */
    void *mark;          /* of the current copy to the bucket, or the current sum; NULL: there is none */
    bool sent, pinned;   /* the twin was copied once; its bucket was pinned then */
    bool reached;        /* all ranks reach all ranks' twins of this bucket, at `of` */
    void *of[TT__DEVICE_PEERS];
    bool lent; /* other ranks may be writing to it */
} twin;

struct tt__ddp_twins {
    struct tt__ddp_twins *old; /* twins of earlier buckets; or NULL */
    const tt_device *device;
    size_t count;
    twin list[];
};

/* ---- where ---- */

static bool is_averaged(const tt__ddp *d, const tt_named_tensors *list, int64_t i) {
    return tt_requires_grad(list->tensors[i]) && !tt__ddp_is_named(d->ignored, list->names[i]);
}

static tt_status check_ddp_device(const tt__ddp *d, const tt_named_tensors *list) {
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

void *tt__ddp_gradient_place(const tt__ddp *d, size_t i) {
    const tt__reducer_param *p = &d->reducer->params[i];
    if (!d->device.twins)
        return p->gradient;
    const twin *t = &d->device.twins->list[p->bucket];
    return (char *)t->data + ((char *)p->gradient - (char *)t->bucket);
}

tt_status tt__ddp_bring_gradient(const tt__ddp_slot *s) {
    tt__ddp *d = s->owner;
    return d->device.twins ? d->reducer->mirror->read(d, s->index, d->reducer->params[s->index].gradient) : TT_OK;
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
    return d->device.twins->list[bucket].reached && !d->reducer->hook && !d->sums_shards;
}

static tt_status twin_send(void *user, size_t bucket) {
    const tt__ddp *d = user;
    const tt_device *device = d->device.twins->device;
    twin *t = &d->device.twins->list[bucket];
    if (twin_reaches(user, bucket)) {
        t->lent = true; /* the others may write to it after the next call */
        return device->queue->mark(device, &t->mark);
    }
    if (!t->bytes || d->sums_shards) /* all gradients are sparse; or they were copied one by one */
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
    const tt_device *device = d->device.twins->device;
    twin *t = &d->device.twins->list[bucket];
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
    twin *t = &d->device.twins->list[bucket];
    const tt__reducer_bucket *b = &d->reducer->buckets[bucket];
    return tt__device_peers_sum(d->device.peers, t->of, b->gradients, b->dtype, true, &t->mark);
}

static tt_status twin_receive(void *user, size_t bucket) {
    const tt__ddp *d = user;
    const tt_device *device = d->device.twins->device;
    twin *t = &d->device.twins->list[bucket];
    if (twin_reaches(user, bucket)) {
        t->lent = false;
        return TT_OK;
    }
    if (!t->bytes || (d->watcher && d->watcher->takes_all))
        return TT_OK;
    return device->queue ? device->queue->receive(device, t->data, t->bucket, t->bytes)
                         : device->from_host(device, t->data, t->bucket, t->bytes);
}

/* A gradient that isn't there counts as zero, and needs no copy. */
static tt_status twin_read(void *user, size_t i, void *to) {
    const tt__ddp *d = user;
    const tt_device *device = d->device.twins->device;
    size_t bytes = d->reducer->params[i].bytes;
    if (tt_grad(d->slots[i].parameter))
        return device->to_host(device, to, tt__ddp_gradient_place(d, i), bytes);
    memset(to, 0, bytes);
    return TT_OK;
}

static tt_status twin_write(void *user, size_t i, const void *from) {
    const tt__ddp *d = user;
    const tt_device *device = d->device.twins->device;
    return device->queue->receive(device, tt__ddp_gradient_place(d, i), from, d->reducer->params[i].bytes);
}

static const tt__reducer_mirror twins_mirror = {.send = twin_send,
                                                .sent = twin_sent,
                                                .receive = twin_receive,
                                                .reaches = twin_reaches,
                                                .sum = twin_sum,
                                                .read = twin_read,
                                                .write = twin_write};

/* ---- the life of twins ---- */

static tt_status make_twin(const tt_device *device, const tt__reducer_bucket *b, twin *t) {
    *t = (twin){.bucket = b->data, .bytes = b->gradients * tt_dtype_size(b->dtype)};
    t->data = device->alloc(device, t->bytes ? t->bytes : 1);
    if (!t->data)
        return tt_last_status();
    return device->from_host(device, t->data, t->bucket, t->bytes); /* copies zeros; those between gradients stay */
}

static void free_twin(const tt_device *device, twin *t) {
    bool done;
    if (t->mark)
        tt_ignore(device->queue->sent(device, t->mark, true, &done));
    if (t->pinned)
        device->queue->unpin(device, t->bucket);
    if (!t->lent) /* ranks of a failed step may still write to a lent twin, so it leaks */
        device->free(device, t->data);
}

static void twins_free(tt__ddp_twins *twins) {
    if (!twins)
        return;
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    twins_free(twins->old);
    tt_ignore(tt_device_synchronize(twins->device)); /* after this no copy uses the twins */
    for (size_t b = 0; b < twins->count; b++)
        if (twins->list[b].data)
            free_twin(twins->device, &twins->list[b]);
    free(twins);
    tt__error_restore_reason(&saved);
}

/* Find out which twins all ranks reach. Collective; a rank that failed before this has aborted the group. */
static tt_status lend_twins(const tt__ddp *d, tt__ddp_twins *twins) {
    size_t reached = 0;
    for (size_t b = 0; b < twins->count && d->device.peers; b++) {
        twin *t = &twins->list[b];
        if (t->bytes)
            TT__TRY(tt__device_peers_reach(d->device.peers, t->data, t->bytes, DDP_SITE, t->of, &t->reached));
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

static tt_status make_twins(tt__ddp *d, const tt_device *device) {
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
    twins->old = d->device.twins;
    d->device.twins = twins;
    d->reducer->mirror = &twins_mirror;
    d->reducer->mirror_user = d;
    return TT_OK;
}

tt_status tt__ddp_attach_device(tt__ddp *d) {
    const tt_device *device = tt_tensor_device(d->slots[0].parameter);
    if (d->reducer->place)
        return TT_OK;
    TT__TRY(tt__device_peers_make(&d->device.peers, d->group, device, DDP_SITE));
    return tt__device_is_host(device) ? TT_OK : make_twins(d, device);
}

tt_status tt__ddp_remake_twins(tt__ddp *d) { return d->device.twins ? make_twins(d, d->device.twins->device) : TT_OK; }

void tt__ddp_drop_old_twins(tt__ddp *d) {
    if (!d->device.twins)
        return;
    twins_free(d->device.twins->old);
    d->device.twins->old = NULL;
}

void tt__ddp_detach_device(tt__ddp *d) {
    twins_free(d->device.twins);
    d->device.twins = NULL;
    tt__device_peers_free(d->device.peers);
    d->device.peers = NULL;
    if (d->reducer && d->reducer->place) /* after this no copy uses its memory */
        tt_ignore(tt_device_synchronize(d->device.place_device));
}

/* ---- buckets on the device ---- */

static bool takes_place(const tt_group *group, const tt_device *device) {
    return !tt__device_is_host(device) && device->queue && tt__group_takes(group, device->type);
}

/* Refuse parameters where the group's back end takes no memory, neither there nor on the host. */
static tt_status check_ddp_place(const tt__ddp *d, const tt_group *group, const tt_named_tensors *list) {
    if (!group || tt__group_takes(group, TT_DEVICE_CPU))
        return TT_OK;
    if (d->virtual_ranks)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: .virtual_ranks are summed on the host, of which the back end %s takes no memory: use the "
                        "native engine, or do without",
                        DDP_SITE, tt_get_backend(group));
    for (int64_t i = 0; i < list->count; i++) {
        const tt_device *device = tt_tensor_device(list->tensors[i]);
        if (!tt__ddp_is_named(d->ignored, list->names[i]) && !takes_place(group, device))
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: parameter \"%s\" lies on %s, of which the back end %s takes no memory: "
                            "tt_module_to_device() to the group's device first, or use the native engine",
                            DDP_SITE, list->names[i], tt_device_name(device), tt_get_backend(group));
    }
    return TT_OK;
}

tt_status tt__ddp_check_devices(const tt__ddp *d, const tt_group *group, const tt_named_tensors *list) {
    TT__TRY(check_ddp_device(d, list));
    return check_ddp_place(d, group, list);
}

static const tt_device *placed_on(const void *user) { return ((const tt__ddp *)user)->device.place_device; }

/* Take memory that the back end has registered, if it registers any; else the device's. */
static tt_status place_alloc(void *user, size_t bytes, void **out) {
    const tt__ddp *d = user;
    const tt_device *device = placed_on(user);
    void *zeros = calloc(1, bytes);
    *out = NULL;
    if (!zeros)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a bucket of %zu bytes", DDP_SITE, bytes);
    tt_status status = tt__group_window_make(d->group, bytes, DDP_SITE, out);
    if (!status && !*out && !(*out = device->alloc(device, bytes)))
        status = tt__fail_prefix("%s: a bucket", DDP_SITE);
    if (!status)
        status = device->from_host(device, *out, zeros, bytes);
    free(zeros);
    return status;
}

static void place_free(void *user, void *data) {
    const tt__ddp *d = user;
    const tt_device *device = placed_on(user);
    if (!data)
        return;
    if (tt__group_has_windows(d->group)) /* registered memory is unmapped at once, unlike the device's */
        tt_ignore(tt_device_synchronize(device));
    if (!tt__group_window_free(d->group, data))
        device->free(device, data);
}

/* The page before a bucket's marks. Marks have pages of their own, so that pinning touches no other memory. */
typedef struct marks_page {
    bool pinned; /* the pages behind this one are */
} marks_page;

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static tt_status place_alloc_host(void *user, size_t bytes, void **out) {
    const tt_device *device = placed_on(user);
    const size_t page = page_size(), whole = (bytes + page - 1) / page * page;
    marks_page *first = aligned_alloc(page, page + whole);
    *out = NULL;
    if (!first)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the marks of a bucket", DDP_SITE);
    memset(first, 0, page + whole);
    *out = (char *)first + page;
    first->pinned = tt__pin_for_copies(device, *out, whole);
    return TT_OK;
}

static void place_free_host(void *user, void *host) {
    const tt_device *device = placed_on(user);
    marks_page *first = host ? (void *)((char *)host - page_size()) : NULL;
    if (first && first->pinned)
        device->queue->unpin(device, host);
    free(first);
}

static tt_status place_write(void *user, void *to, const void *host, size_t bytes) {
    const tt_device *device = placed_on(user);
    return bytes ? device->queue->receive(device, to, host, bytes) : TT_OK;
}

static tt_status place_read(void *user, void *host, const void *from, size_t bytes, void **mark) {
    const tt_device *device = placed_on(user);
    return bytes ? device->queue->send(device, host, from, bytes, mark) : TT_OK;
}

static tt_status place_wait(void *user, void *mark) {
    const tt_device *device = placed_on(user);
    bool done;
    return device->queue->sent(device, mark, true, &done);
}

const tt__reducer_place *tt__ddp_place(tt__ddp *d) {
    const tt_device *device = tt_tensor_device(d->slots[0].parameter);
    if (!takes_place(d->group, device))
        return NULL;
    d->device.place_device = device;
    d->device.place = (tt__reducer_place){.user = d,
                                          .device = device->type,
                                          .index = device->index,
                                          .stream = tt_device_stream(device),
                                          .alloc = place_alloc,
                                          .free = place_free,
                                          .alloc_host = place_alloc_host,
                                          .free_host = place_free_host,
                                          .write = place_write,
                                          .read = place_read,
                                          .wait = place_wait};
    return &d->device.place;
}
