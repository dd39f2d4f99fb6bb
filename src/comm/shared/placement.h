/* Where the ranks of a group that share memory run, and what follows from it. */
#ifndef TT_COMM_SHARED_PLACEMENT_H
#define TT_COMM_SHARED_PLACEMENT_H

#include "comm/native_group.h"

/* Choose the order (size) in which this rank moves `bytes` from each of the others, itself last: by the caches and
 * memory they share (topology.h). Ranks needn't agree. hwloc is not asked where it does not matter: with few peers or
 * little data. */
const uint8_t *tt__peer_order(tt_group *group, size_t bytes);

/* Count the CPUs that are left to rank `me` if each CPU is divided among the ranks that may use it: at least 1. masks
 * (ranks): the CPUs that each may use, TT__CPU_MASK_WORDS words. quota: CPUs' worth of time that rank `me` may use;
 * what is less than its CPUs is taken for a limit of all ranks together. `strangers`: further ranks, which may use the
 * same CPUs as `me`. */
int tt__cpu_share_of(const uint64_t *const *masks, int ranks, int me, int strangers, uint32_t quota);

/* Has each rank of this host a CPU to itself, so that busy waiting pays? By the CPUs that all have published. */
bool tt__ranks_fit_cpus(const tt_group *group);

#endif
