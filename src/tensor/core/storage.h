/* Storage: the bytes that tensors share, on one device. */
#ifndef TT_TENSOR_STORAGE_H
#define TT_TENSOR_STORAGE_H

#include "tensor/device/device.h"

#include <stdatomic.h>

/* Counted by the tensors that use it, from any thread. */
typedef struct tt__storage {
    _Atomic int refs;
    _Atomic uint32_t version; /* grows with each write that is not its first: records compare it */
    _Atomic bool viewed;      /* another tensor was made over it: a view, or a detached one */
    bool recycle;             /* goes back to the thread's pool; else, if large, to the system */
    _Atomic bool away;        /* its elements are elsewhere: not to be read or written now */
    size_t bytes;             /* of memory of our own; 0: the memory is borrowed */
    const tt_device *device;
    void *data;
    struct tt__pinned *pinned; /* owned: pinned.h, where the memory is of a pinned block; or NULL */
    char *away_name; /* owned: the parameter whose elements these are, for errors while they are away; or NULL */
    void (*release)(void *data); /* where `data` are memory of another home, which the storage owns; or NULL */
} tt__storage;

/* Allocate `bytes` on `device`, uninitialised; NULL: no memory. */
tt__storage *tt__storage_new(const tt_device *device, size_t bytes);

/* The same on the host, in pinned memory for copies to `device`, or in other memory where there is none. */
tt__storage *tt__storage_new_pinned(const tt_device *device, size_t bytes);

/* Make a storage of `bytes` host bytes at `data`, which it owns from now on: release(data) frees them. NULL: no memory,
 * and they stay the caller's. */
tt__storage *tt__storage_take(void *data, size_t bytes, void (*release)(void *data));

/* Make a storage over the caller's memory, which must outlive it. */
tt__storage *tt__storage_borrow(const tt_device *device, void *data);

tt__storage *tt__storage_ref(tt__storage *storage);
void tt__storage_unref(tt__storage *storage); /* NULL is allowed */

/* Are the elements away? */
static inline bool tt__storage_is_away(const tt__storage *storage) {
    return atomic_load_explicit(&storage->away, memory_order_relaxed);
}

/* Note that the bytes are about to be, or were, overwritten: records made with them can't go backward any more. */
static inline void tt__storage_touch(tt__storage *storage) {
    atomic_fetch_add_explicit(&storage->version, 1, memory_order_relaxed);
}

#endif
