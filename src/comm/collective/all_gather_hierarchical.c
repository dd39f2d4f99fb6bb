/* hierarchical, for all_gather and all_gather_v: ranks with the same number inside their hosts gather between the hosts, then each host gathers in
 * shared memory, once for every host's blocks.
 *
 * H hosts of L ranks, blocks of m bytes; ranks may be numbered in any order.
 *   steps between hosts   those of an all_gather_v among H
 *   bytes between hosts   (H-1) L m sent a host; flat algorithms send up to L times as much
 *   calls inside          H */
#include "comm/collective/blocks.h"
#include "comm/collective/hierarchical.h"
#include "comm/collective/message_algorithms.h"
#include "comm/collective/rounds.h"

#include "base/error.h"

static size_t count_of(const tt_call *call, int r) { return call->recv_counts ? call->recv_counts[r] : call->count; }

static size_t offset_of(const tt_call *call, int r) {
    return call->recv_offsets ? call->recv_offsets[r] : (size_t)r * call->count;
}

/* Gather among the ranks of `on`, rank i of which is ranks[i] of the group: everybody's block to where it belongs. */
static tt__next leg(tt_work *work, tt_group *on, const int *ranks, int stride, const void *send) {
    size_t *counts = (size_t *)(void *)tt__machine_memory(work), *offsets = counts + on->size;
    for (int i = 0; i < on->size; i++) {
        counts[i] = count_of(&work->call, ranks[i * stride]);
        offsets[i] = offset_of(&work->call, ranks[i * stride]);
    }
    return tt__leg(work, on,
                   (tt_call){.op = TT_OP_ALL_GATHER_V,
                             .count = counts[on->rank],
                             .send = send,
                             .recv = work->call.recv,
                             .recv_counts = counts,
                             .recv_offsets = offsets});
}

static tt__next next(tt_work *work) {
    tt_group *local = work->group->local, *cross = work->group->cross;
    const int *ranks = work->group->by_host;
    int h = work->stage++ - 1;
    if (h < 0) {
        size_t most = (size_t)(local->size > cross->size ? local->size : cross->size);
        if (tt__machine_scratch(work, 2 * most * sizeof(size_t)))
            return TT__NEXT_FAILED;
        return leg(work, cross, ranks + local->rank, local->size, work->call.send);
    }
    if (h == cross->size)
        return TT__NEXT_DONE;
    ranks += h * local->size;
    return leg(work, local, ranks, 1, tt__recv_block(&work->call, ranks[local->rank]).data);
}

const tt__algorithm tt__all_gather_hierarchical = {"hierarchical", TT_OP_ALL_GATHER, .children = true,
                                                   .serves = tt__serves_hosts, .next = next};
const tt__algorithm tt__all_gather_v_hierarchical = {"hierarchical", TT_OP_ALL_GATHER_V, .children = true,
                                                     .serves = tt__serves_hosts, .next = next};
