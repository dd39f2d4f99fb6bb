/* direct, for gather and scatter: between the root and every other rank, at once.
 *
 * N ranks, blocks of m bytes.
 *   steps              1
 *   bytes sent a rank  gather m (root: 0); scatter root (N-1) m
 * No byte travels twice. */
#include "comm/collective/message/rounds.h"

static bool gather_direct_is_root(const tt_work *work) { return work->group->rank == work->call.root; }

static size_t gather_direct_block_bytes(const tt_work *work) {
    return work->call.count * tt_dtype_size(work->call.dtype);
}

static tt_status plan_gather(tt_work *work) {
    if (gather_direct_is_root(work))
        tt__copy_block(tt__recv_block(&work->call, work->group->rank), work->call.send);
    return tt__rounds_plan(work, 1, (uint32_t)work->group->size);
}

static void post_gather(tt_work *work, uint32_t round) {
    if (!gather_direct_is_root(work))
        tt__round_send(work, round, work->call.root, 0, work->call.send, gather_direct_block_bytes(work));
    for (int i = 1; i < work->group->size && gather_direct_is_root(work); i++) {
        int from = tt__neighbour(work->group, i);
        tt__rank_block block = tt__recv_block(&work->call, from);
        tt__round_recv(work, round, from, 0, block.data, block.bytes);
    }
}

static tt__next next_gather(tt_work *work) {
    static const tt__rounds rounds = {.plan = plan_gather, .post = post_gather};
    return tt__rounds_next(work, &rounds);
}

static tt_status plan_scatter(tt_work *work) {
    if (gather_direct_is_root(work))
        tt__copy_block((tt__rank_block){work->call.recv, gather_direct_block_bytes(work)},
                       tt__send_block(&work->call, work->group->rank).data);
    return tt__rounds_plan(work, 1, (uint32_t)work->group->size);
}

static void post_scatter(tt_work *work, uint32_t round) {
    if (!gather_direct_is_root(work))
        tt__round_recv(work, round, work->call.root, 0, work->call.recv, gather_direct_block_bytes(work));
    for (int i = 1; i < work->group->size && gather_direct_is_root(work); i++) {
        int to = tt__neighbour(work->group, i);
        tt__rank_block block = tt__send_block(&work->call, to);
        tt__round_send(work, round, to, 0, block.data, block.bytes);
    }
}

static tt__next next_scatter(tt_work *work) {
    static const tt__rounds rounds = {.plan = plan_scatter, .post = post_scatter};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__gather_direct = {"direct", TT_OP_GATHER, .next = next_gather};
const tt__algorithm tt__scatter_direct = {"direct", TT_OP_SCATTER, .next = next_scatter};
