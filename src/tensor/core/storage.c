/* Storage: made on a device, counted, and freed or recycled with its last tensor. */
#include "tensor/core/tensor.h"

#include "tensor/core/pool.h"
#include "tensor/device/pinned.h"

#include <stdlib.h>

/* Storage of at least this size goes back to the system when its last tensor belonged to no scope: such tensors
 * (parameters, data sets) are not made again in every step. */
static const size_t large_bytes = (size_t)1 << 20;

/* On the host: one block, a header of 64 bytes and the elements. */
enum { HEADER = 64 };
_Static_assert(sizeof(tt__storage) <= HEADER, "the elements stay 64-byte aligned");

tt__storage *tt__storage_new(const tt_device *device, size_t bytes) {
    bool host = tt__device_is_host(device);
    if (!host && !bytes)
        bytes = 1; /* a size of 0 means borrowed memory */
    tt__storage *storage = tt__pool_alloc(HEADER + (host ? bytes : 0));
    if (!storage)
        return NULL;
    void *data = host ? (char *)storage + HEADER : device->alloc(device, bytes);
    if (!data) {
        tt__pool_free(storage);
        return NULL;
    }
    *storage = (tt__storage){.refs = 1, .recycle = true, .bytes = bytes, .device = device, .data = data};
    return storage;
}

tt__storage *tt__storage_new_pinned(const tt_device *device, size_t bytes) {
    tt__pinned *block = tt__pinned_take(device, bytes);
    if (!block)
        return tt__storage_new(&tt__cpu_device, bytes);
    tt__storage *storage = tt__storage_borrow(&tt__cpu_device, tt__pinned_data(block));
    if (!storage) {
        tt__pinned_give(block);
        return NULL;
    }
    storage->bytes = bytes;
    storage->pinned = block;
    return storage;
}

tt__storage *tt__storage_take(void *data, size_t bytes, void (*release)(void *data)) {
    tt__storage *storage = tt__storage_borrow(&tt__cpu_device, data);
    if (storage) {
        storage->bytes = bytes;
        storage->release = release;
    }
    return storage;
}

tt__storage *tt__storage_borrow(const tt_device *device, void *data) {
    tt__storage *storage = tt__pool_alloc(HEADER);
    if (storage)
        *storage = (tt__storage){.refs = 1, .recycle = true, .device = device, .data = data};
    return storage;
}

tt__storage *tt__storage_ref(tt__storage *storage) {
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

static bool is_own_device_memory(const tt__storage *s) { return !tt__device_is_host(s->device) && s->bytes; }

void tt__storage_unref(tt__storage *storage) {
    if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (is_own_device_memory(storage))
        storage->device->free(storage->device, storage->data);
    if (storage->release)
        storage->release(storage->data);
    tt__pinned_give(storage->pinned);
    free(storage->away_name);
    if (storage->recycle || storage->bytes < large_bytes)
        tt__pool_free(storage);
    else
        tt__pool_discard(storage);
}
