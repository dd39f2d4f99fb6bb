/* All_reduce of tensors on devices, where they lie: for groups of the native engine that were told their device. */
#ifndef TT_PARALLEL_DEVICE_ALL_REDUCE_H
#define TT_PARALLEL_DEVICE_ALL_REDUCE_H

#include <tutti/parallel.h>

/* Is it such a call? Its arguments were checked. */
bool tt__device_all_reduce_fits(const tt_tensor_all_reduce_args *a);

/* Carry it out; *done false: the ranks can't reach each other's memory, and none has begun. Waits for the devices. */
tt_status tt__device_all_reduce(const tt_tensor_all_reduce_args *a, const char *who, bool *done);

#endif
