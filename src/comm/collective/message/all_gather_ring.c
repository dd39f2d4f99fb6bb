/* ring, for all_gather and all_gather_v: every block travels around the ring of ranks.
 *
 * N ranks, blocks of m bytes.
 *   steps              N-1
 *   bytes sent a rank  (N-1) m
 * Each rank talks to its two neighbours alone: for long blocks and many ranks. */
#include "comm/collective/message/rounds.h"

static tt_status all_gather_ring_plan(tt_work *work) {
    tt__copy_block(tt__recv_block(&work->call, work->group->rank), work->call.send);
    return tt__rounds_plan(work, (uint32_t)work->group->size - 1, 2);
}

static void all_gather_ring_early(tt_work *work, uint32_t round) {
    tt__rank_block theirs = tt__recv_block(&work->call, tt__neighbour(work->group, -1 - (int)round));
    tt__round_recv(work, round, tt__neighbour(work->group, -1), round, theirs.data, theirs.bytes);
}

static void all_gather_ring_post(tt_work *work, uint32_t round) {
    tt__rank_block mine = tt__recv_block(&work->call, tt__neighbour(work->group, -(int)round));
    tt__round_send(work, round, tt__neighbour(work->group, 1), round, mine.data, mine.bytes);
}

static tt__next all_gather_ring_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = all_gather_ring_plan, .early = all_gather_ring_early, .post = all_gather_ring_post};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__all_gather_ring = {"ring", TT_OP_ALL_GATHER, .next = all_gather_ring_next};
const tt__algorithm tt__all_gather_v_ring = {"ring", TT_OP_ALL_GATHER_V, .next = all_gather_ring_next};
