/* Sums of memory on the devices of one host's ranks: each rank maps the others' memory, and sums its share of the
 * elements into all of it. Ranks may share a device.
 *
 * The others' memory is mapped piece by piece, each piece at its place in its owner's range (tt__device_sharing).
 * Descriptors of the pieces go over Unix sockets (comm/native/peer_memory.h). After a failed step, memory that others
 * may still write to is never used again. */
#ifndef TT_PARALLEL_DEVICE_PEERS_H
#define TT_PARALLEL_DEVICE_PEERS_H

#include "tensor/device/device.h"

#include <tutti/comm.h>
#include <tutti/parallel.h>

typedef struct tt__device_peers tt__device_peers;

/* Collective, also for ranks whose `device` is the host; the caller keeps the group. *out := NULL: they can't reach
 * each other's memory. TT_CUDA_P2P=0 on a rank forbids it. An error ends the group. */
tt_status tt__device_peers_make(tt__device_peers **out, tt_group *group, const tt_device *device, const char *who);

/* Unmap the others' memory, which no work may still use. NULL is allowed. */
void tt__device_peers_free(tt__device_peers *peers);

/* Collective: of[r] := where `bytes` of rank r, its `memory`, lie here. *reached false, on all ranks: some rank can't
 * reach some memory, now or in an earlier call; the log says why at level info. Valid as long as the owner keeps the
 * memory. */
tt_status tt__device_peers_reach(tt__device_peers *peers, void *memory, size_t bytes, const char *who, void **of,
                                 bool *reached);

/* Begin to write this rank's share of the averages (or sums) of `count` elements to all of[r]. The host must know that
 * all ranks' elements are final; no rank may read the result before all have ended. *mark: as in tt__device_sharing. */
tt_status tt__device_peers_sum(const tt__device_peers *peers, void *const *of, size_t count, tt_dtype dtype,
                               bool average, void **mark);

/* Can tt__device_all_reduce() do this call, whose arguments were checked? */
bool tt__device_all_reduce_fits(const tt_tensor_all_reduce_args *a);

/* All-reduce tensors on devices where they lie, for groups of the native engine that were told their device. *done
 * false: the ranks can't reach each other's memory, and nothing was done. Waits for the devices. */
tt_status tt__device_all_reduce(const tt_tensor_all_reduce_args *a, const char *who, bool *done);

#endif
