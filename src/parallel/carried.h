/* Memory for tensors of one device that collectives read and write.
 *
 * On the host it is symmetric memory. On another device it is the device's memory, which calls use directly if the
 * group's back end takes it. Otherwise it has a twin in symmetric memory, pinned if possible; bytes are copied between
 * the two in the order of the device's stream, and the host need not wait. */
#ifndef TT_PARALLEL_CARRIED_H
#define TT_PARALLEL_CARRIED_H

#include "tensor/device/device.h"

#include <tutti/comm.h>

typedef struct tt__carried {
    const tt_device *device; /* NULL: nothing is there */
    void *data;              /* where tensors lie */
    void *near;              /* what calls are given: the twin, or `data` */
    size_t bytes;
    bool pinned;
    void *mark; /* of the last copy between the two, if it may not have ended; or NULL */
} tt__carried;

/* Make zeros. Collective. *c may be freed after a failure, too. If the device fails on this rank alone, the group is
 * aborted. TT_ERR_UNSUPPORTED, before anything else: the back end takes memory neither of the device nor of the
 * host. */
tt_status tt__carried_make(tt__carried *c, tt_group *group, const tt_device *device, size_t bytes, const char *who);

/* Collective as tt_group_free() is. False: the group failed; its end releases the rest. */
bool tt__carried_free(tt__carried *c, tt_group *group, const char *who);

/* tt__carried_send() begins to copy bytes to the twin, after the device's work so far. tt__carried_receive() begins to
 * copy bytes that a call wrote to the twin to the device, before its later work. Each copy waits for the one before.
 * Without a twin both do nothing. */
tt_status tt__carried_send(tt__carried *c, size_t at, size_t bytes);
tt_status tt__carried_receive(tt__carried *c, size_t at, size_t bytes);

/* Wait for the copy: calls may read and write at c->near. */
tt_status tt__carried_settle(tt__carried *c);

/* Pin memory of the host, so that copies between it and the device run without the host. False: it can't be pinned. */
bool tt__pin_for_copies(const tt_device *device, void *host, size_t bytes);

static inline void *tt__carried_at(const tt__carried *c, size_t at) { return (char *)c->data + at; }
static inline void *tt__carried_near(const tt__carried *c, size_t at) { return (char *)c->near + at; }
static inline bool tt__carried_is_far(const tt__carried *c) {
    return c->near == c->data && !tt__device_is_host(c->device);
}

/* Arguments of a call that say where its buffers at c->near lie. */
#define TT__CARRIED_ON(c)                                                \
    .device = tt__carried_is_far(c) ? (c)->device->type : TT_DEVICE_CPU, \
    .device_index = tt__carried_is_far(c) ? (c)->device->index : 0,      \
    .stream = tt__carried_is_far(c) ? tt_device_stream((c)->device) : NULL

#endif
