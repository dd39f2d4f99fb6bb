/* Parameters on a device: see ddp_device.c. */
#ifndef TT_PARALLEL_DDP_DEVICE_H
#define TT_PARALLEL_DDP_DEVICE_H

#include "parallel/ddp/ddp_state.h"

/* Where the wrapper's parameters lie; NULL: on the host. After tt__ddp_check_devices(). */
const tt_device *tt__ddp_far_device(const tt__ddp *d);

/* Refuse parameters on several devices, and what can't be averaged from a device. */
tt_status tt__ddp_check_devices(const tt__ddp *d, const tt_named_tensors *parameters);

/* Find out whether the ranks reach each other's devices. Collective, also for parameters on the host. */
tt_status tt__ddp_meet_peers(tt__ddp *d, const tt_device *device);

/* The wrapper has new buckets: give each a twin on the parameters' device. Does nothing for parameters on the host, and
 * for buckets that lie on the device themselves. Collective where peers were met. The twins before stay until
 * tt__ddp_drop_old_twins(). */
tt_status tt__ddp_make_twins(tt__ddp *d, const tt_device *device);
void tt__ddp_drop_old_twins(tt__ddp *d);

/* Free all twins, when no gradient lies there any more, and leave the peers. */
void tt__ddp_free_twins(tt__ddp *d);

/* Where the gradient of slot i lies: in a bucket, or in its twin. */
void *tt__ddp_gradient_place(const tt__ddp *d, size_t i);

/* Copy the slot's gradient, or zeros where it has none, to its bucket on the host, if it lies on a device. Waits. */
tt_status tt__ddp_bring_gradient(const tt__ddp_slot *slot);

/* Overwrite the slot's gradient, whether it has one or not, with zeros. */
tt_status tt__ddp_clear_gradient(const tt__ddp_slot *slot);

#endif
