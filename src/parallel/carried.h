/* Memory in which tensors of one device lie and which collectives read and write: on the host symmetric memory; on
 * another device its memory, in which calls work where the group's back end takes that. Otherwise it has a twin in
 * symmetric memory, pinned, between which and the device bytes are copied beside the host and in the order of the
 * device's stream. */
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
    void *mark; /* of the last copy between the two, which may be under way; or NULL */
} tt__carried;

/* Make zeros. Collective, and *c may be freed after a failure. A device may fail on this rank alone; the group is then
 * aborted. TT_ERR_UNSUPPORTED, before that: the back end takes memory neither of the device nor of the host. */
tt_status tt__carried_make(tt__carried *c, tt_group *group, const tt_device *device, size_t bytes, const char *who);

/* Collective as tt_group_free() is. False: the group failed; its end releases the rest. */
bool tt__carried_free(tt__carried *c, tt_group *group, const char *who);

/* Begin to copy bytes to where calls take them, behind the device's work so far; or, when a call has written there, to
 * where tensors lie, before its later work. One copy at a time: each waits for the one before. Both do nothing where
 * calls take the tensors' own memory. */
tt_status tt__carried_send(tt__carried *c, size_t at, size_t bytes);
tt_status tt__carried_receive(tt__carried *c, size_t at, size_t bytes);

/* Wait for the copy: calls may read and write at c->near. */
tt_status tt__carried_settle(tt__carried *c);

/* Let copies between the device and this memory run beside the host, if it can be pinned. */
bool tt__pin_for_copies(const tt_device *device, void *host, size_t bytes);

static inline void *tt__carried_at(const tt__carried *c, size_t at) { return (char *)c->data + at; }
static inline void *tt__carried_near(const tt__carried *c, size_t at) { return (char *)c->near + at; }
static inline bool tt__carried_is_far(const tt__carried *c) {
    return c->near == c->data && !tt__device_is_host(c->device);
}

/* How a call says where its buffers at c->near lie. */
#define TT__CARRIED_ON(c)                                                \
    .device = tt__carried_is_far(c) ? (c)->device->type : TT_DEVICE_CPU, \
    .device_index = tt__carried_is_far(c) ? (c)->device->index : 0,      \
    .stream = tt__carried_is_far(c) ? tt_device_stream((c)->device) : NULL

#endif
