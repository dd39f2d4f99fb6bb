/* Where the ranks of a group that share memory run, and what follows from it. */
#ifndef TT_COMM_SHARED_PLACEMENT_H
#define TT_COMM_SHARED_PLACEMENT_H

#include "comm/native_group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Choose the order (size) in which this rank moves `bytes` from each of the others, itself last: by the caches and
 * memory they share. Ranks may choose differently. With few peers or little data hwloc is not asked. */
const uint8_t *tt__peer_order(tt_group *group, size_t bytes);

/* Count the CPUs that are left to rank `me` if each CPU is divided among the ranks that may use it: at least 1. masks
 * (ranks): the CPUs that each may use, TT__CPU_MASK_WORDS words. quota: CPUs' worth of time that rank `me` may use; a
 * quota below the number of its CPUs is taken for a limit of all ranks together. `strangers`: further ranks, which may
 * use the same CPUs as `me`. */
int tt__cpu_share_of(const uint64_t *const *masks, int ranks, int me, int strangers, uint32_t quota);

/* Has each rank of this host a CPU to itself, so that busy waiting pays? By the CPUs that all have published. */
bool tt__ranks_fit_cpus(const tt_group *group);

/* ---- which memory and caches the ranks of a host share, as hwloc sees it. The first call that needs hwloc loads it,
 * which takes some milliseconds; without hwloc all is unknown. */

enum { TT__TOPOLOGY_CPUS = 1024, TT__TOPOLOGY_MASK_WORDS = TT__TOPOLOGY_CPUS / 64, TT__NOWHERE = -1 };

/* NUMA node, last-level cache, core and package of each CPU, by hwloc's logical numbers; TT__NOWHERE where unknown. */
typedef struct tt__topology {
    int nodes, caches;
    int16_t node_of[TT__TOPOLOGY_CPUS], cache_of[TT__TOPOLOGY_CPUS], core_of[TT__TOPOLOGY_CPUS],
        package_of[TT__TOPOLOGY_CPUS];
} tt__topology;

/* Where a rank runs; TT__NOWHERE: on several, or unknown. */
typedef struct tt__place {
    int node, cache;
} tt__place;

/* Ask hwloc; false and a topology of nowhere if it can't be loaded or knows nothing. hwloc's own variables apply
 * (HWLOC_SYNTHETIC). */
bool tt__topology_read(tt__topology *topology);

/* Return this machine's topology, read once. */
const tt__topology *tt__topology_get(void);

/* Return the place of a rank that may use the CPUs in `mask` (TT__TOPOLOGY_MASK_WORDS). */
tt__place tt__topology_place(const tt__topology *topology, const uint64_t *mask);

/* Choose the order in which rank `me` of n reads from the ranks: neighbours of its cache first, then of its node,
 * itself last; and never two ranks from the same one at a time, if all keep step. places (n), order (n). */
void tt__topology_order(const tt__place *places, int n, int me, uint8_t *order);

/* "ranks 0-3 on NUMA node 0, cache 0; ranks 4-7 on NUMA node 0, cache 1". */
void tt__topology_text(const tt__place *places, int n, char *text, size_t size);

#endif
