/* Buckets on a device. Where the group's back end takes the device's memory, gradients are averaged where they are
 * computed: a bucket's call stands behind the work on the device's stream so far, runs beside the rest of the backward
 * pass, and the stream waits for its result. The host waits for the device only in steps in which a parameter got no
 * gradient here, for what the other ranks say of it; and for the step before the last.
 *
 * Bytes to and from the device a step: one element for each parameter. */
#include "parallel/ddp/ddp_place.h"

#include "base/error.h"
#include "comm/group.h"
#include "parallel/carried.h"
#include "parallel/ddp/ddp_names.h"
#include "tensor/device/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool takes_place(const tt_group *group, const tt_device *device) {
    return !tt__device_is_host(device) && device->queue && tt__group_takes(group, device->type);
}

tt_status tt__ddp_check_place(const tt__ddp *d, const tt_group *group, const tt_named_tensors *list) {
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

/* Memory that the back end has registered, if it has such. */
static tt_status place_alloc(void *user, size_t bytes, void **out) {
    const tt__ddp *d = user;
    const tt_device *device = d->place_device;
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
    const tt_device *device = d->place_device;
    if (!data)
        return;
    if (tt__group_has_windows(d->group)) /* memory of the device's is free for what comes behind; theirs goes */
        tt_ignore(tt_device_synchronize(device));
    if (!tt__group_window_free(d->group, data))
        device->free(device, data);
}

/* The marks of a bucket: a page says whether they, the pages behind it, are pinned. So no other memory is pinned in
 * part. */
typedef struct marks_page {
    bool pinned;
} marks_page;

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static tt_status place_alloc_host(void *user, size_t bytes, void **out) {
    const tt_device *device = ((const tt__ddp *)user)->place_device;
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
    const tt_device *device = ((const tt__ddp *)user)->place_device;
    marks_page *first = host ? (void *)((char *)host - page_size()) : NULL;
    if (first && first->pinned)
        device->queue->unpin(device, host);
    free(first);
}

static tt_status place_write(void *user, void *to, const void *host, size_t bytes) {
    const tt_device *device = ((const tt__ddp *)user)->place_device;
    return bytes ? device->queue->receive(device, to, host, bytes) : TT_OK;
}

static tt_status place_read(void *user, void *host, const void *from, size_t bytes, void **mark) {
    const tt_device *device = ((const tt__ddp *)user)->place_device;
    return bytes ? device->queue->send(device, host, from, bytes, mark) : TT_OK;
}

static tt_status place_wait(void *user, void *mark) {
    const tt_device *device = ((const tt__ddp *)user)->place_device;
    bool done;
    return device->queue->sent(device, mark, true, &done);
}

const tt__reducer_place *tt__ddp_place(tt__ddp *d) {
    const tt_device *device = tt_tensor_device(d->slots[0].parameter);
    if (!takes_place(d->group, device))
        return NULL;
    d->place_device = device;
    d->place = (tt__reducer_place){.user = d,
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
    return &d->place;
}
