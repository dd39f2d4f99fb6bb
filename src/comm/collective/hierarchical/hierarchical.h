/* Algorithms made of calls inside hosts (group->native->local, shared memory) and between them (group->native->cross:
 * the ranks with this rank's number inside their hosts). Such a call, a leg, is a child of the work; one at a time.
 * Hosts are numbered by their first ranks, alike on all ranks. */
#ifndef TT_COMM_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_H
#define TT_COMM_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_H

#include "comm/native_group.h"

/* Up to this many bytes, fewer legs are worth copying, or sending more. */
enum { TT__PACK_MAX = 64 << 10 };

/* An algorithm's serves(): are there several hosts, with as many ranks each, more than one? */
bool tt__serves_hosts(const tt_group *group, const tt_call *call);

/* The same, and may hosts reduce first, as subtrees of the one summation order? */
bool tt__serves_subtrees(const tt_group *group, const tt_call *call);

/* The same, and is a host's sum shorter than its leaves? The f32 sum of two 16-bit floats is as long as both. */
bool tt__serves_sums(const tt_group *group, const tt_call *call);

/* Return the number of rank r's host (its rank in a cross group), and its own number inside the host (its rank in a
 * local group). */
static inline int tt__host_of(const tt_group *group, int r) {
    return group->native->place[r] / group->native->local->size;
}
static inline int tt__local_of(const tt_group *group, int r) {
    return group->native->place[r] % group->native->local->size;
}

/* Return the rank with a number inside a host. */
static inline int tt__rank_on(const tt_group *group, int host, int local) {
    return group->native->by_host[host * group->native->local->size + local];
}

/* Make `call` on `group`, and come back when it is done; call site, timeout and type (unless it is given) are the
 * work's. */
tt__next tt__leg(tt_work *work, tt_group *group, tt_call call);
tt__next tt__leg_of(tt_work *work, tt_group *group, tt_dtype dtype, tt_call call);

/* all_reduce of f16 and bf16. */
tt__next tt__all_reduce_hierarchical_fp16(tt_work *work);

extern const tt__algorithm tt__barrier_hierarchical, tt__all_reduce_hierarchical, tt__reduce_hierarchical,
    tt__reduce_scatter_hierarchical, tt__broadcast_hierarchical, tt__all_gather_hierarchical,
    tt__all_gather_v_hierarchical, tt__gather_hierarchical, tt__scatter_hierarchical, tt__all_to_all_hierarchical;

#endif
