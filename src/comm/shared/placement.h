/* Where the ranks of a group that share memory run, and what follows from it. */
#ifndef TT_COMM_SHARED_PLACEMENT_H
#define TT_COMM_SHARED_PLACEMENT_H

#include "comm/native_group.h"

/* The order (size) in which this rank turns to the others to move `bytes` of each, itself last: by what caches and
 * memory they share (topology.h). Ranks needn't agree. Where it does not matter, with few peers or little data, hwloc
 * is not asked. */
const uint8_t *tt__peer_order(tt_group *group, size_t bytes);

/* Whether each rank of this host has a CPU to itself, so that busy waiting pays; from what all say about their CPUs. */
bool tt__ranks_fit_cpus(const tt_group *group);

#endif
