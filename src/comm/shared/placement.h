/* Where the ranks of a group that share memory run, and what follows from it. */
#ifndef TT_COMM_SHARED_PLACEMENT_H
#define TT_COMM_SHARED_PLACEMENT_H

#include "comm/native_group.h"

/* Choose the order (size) in which this rank moves `bytes` from each of the others, itself last: by the caches and
 * memory they share (topology.h). Ranks needn't agree. hwloc is not asked where it does not matter: with few peers or
 * little data. */
const uint8_t *tt__peer_order(tt_group *group, size_t bytes);

/* Has each rank of this host a CPU to itself, so that busy waiting pays? By the CPUs that all have published. */
bool tt__ranks_fit_cpus(const tt_group *group);

#endif
