/* hierarchical, for all_gather: ranks with the same number inside their hosts gather between the hosts, then each host gathers in shared memory, once for
 * every host's blocks.
 *
 * H hosts of L ranks, blocks of m bytes. Ranks are numbered host by host, so the blocks of a host lie side by side.
 *   steps between hosts   those of an all_gather among H
 *   bytes between hosts   (H-1) L m sent a host; flat algorithms send up to L times as much
 *   calls inside          H */
#include "comm/collective/blocks.h"
#include "comm/collective/hierarchical.h"
#include "comm/collective/message_algorithms.h"
#include "comm/collective/rounds.h"

#include "base/error.h"

/* The first leg: everybody's block with this rank's number, straight to where it belongs. */
static tt__next between(tt_work *work) {
    const tt_group *local = work->group->local, *cross = work->group->cross;
    size_t hosts = (size_t)cross->size, host_stride = (size_t)local->size * work->call.count;
    if (tt__machine_scratch(work, 2 * hosts * sizeof(size_t)))
        return TT__NEXT_FAILED;
    size_t *counts = (size_t *)(void *)tt__machine_memory(work), *offsets = counts + hosts;
    for (size_t h = 0; h < hosts; h++) {
        counts[h] = work->call.count;
        offsets[h] = h * host_stride + (size_t)local->rank * work->call.count;
    }
    return tt__leg(work, work->group->cross,
                   (tt_call){.op = TT_OP_ALL_GATHER_V,
                             .count = work->call.count,
                             .send = work->call.send,
                             .recv = work->call.recv,
                             .recv_counts = counts,
                             .recv_offsets = offsets});
}

/* The blocks of host h, in place. */
static tt__next inside(tt_work *work, int h) {
    tt_group *local = work->group->local;
    int first = h * local->size;
    return tt__leg(work, local,
                   (tt_call){.op = TT_OP_ALL_GATHER,
                             .count = work->call.count,
                             .send = tt__recv_block(&work->call, first + local->rank).data,
                             .recv = tt__recv_block(&work->call, first).data});
}

static tt__next next(tt_work *work) {
    int stage = work->stage++;
    if (!stage)
        return between(work);
    return stage <= work->group->cross->size ? inside(work, stage - 1) : TT__NEXT_DONE;
}

static bool serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return tt__has_host_blocks(group);
}

const tt__algorithm tt__all_gather_hierarchical = {"hierarchical", TT_OP_ALL_GATHER, .children = true, .serves = serves,
                                                   .next = next};
