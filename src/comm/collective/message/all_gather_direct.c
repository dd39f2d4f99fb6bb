/* direct, for all_gather and all_gather_v: every rank sends its block to all.
 *
 * N ranks, blocks of m bytes.
 *   steps              1
 *   bytes sent a rank  (N-1) m, as with any algorithm
 * For up to 64 ranks. */
#include "comm/collective/message/rounds.h"

static tt_status all_gather_direct_plan(tt_work *work) {
    tt__copy_block(tt__recv_block(&work->call, work->group->rank), work->call.send);
    return tt__rounds_plan(work, 1, 2 * (uint32_t)work->group->size);
}

static void all_gather_direct_post(tt_work *work, uint32_t round) {
    tt__rank_block mine = tt__recv_block(&work->call, work->group->rank);
    for (int i = 1; i < work->group->size; i++) {
        int to = tt__neighbour(work->group, i), from = tt__neighbour(work->group, -i);
        tt__rank_block theirs = tt__recv_block(&work->call, from);
        tt__round_recv(work, round, from, 0, theirs.data, theirs.bytes);
        tt__round_send(work, round, to, 0, mine.data, mine.bytes);
    }
}

static tt__next all_gather_direct_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = all_gather_direct_plan, .post = all_gather_direct_post};
    return tt__rounds_next(work, &rounds);
}

static bool all_gather_direct_serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size <= TT__DIRECT_RANKS;
}

const tt__algorithm tt__all_gather_direct = {"direct", TT_OP_ALL_GATHER, .serves = all_gather_direct_serves,
                                             .next = all_gather_direct_next};
const tt__algorithm tt__all_gather_v_direct = {"direct", TT_OP_ALL_GATHER_V, .serves = all_gather_direct_serves,
                                               .next = all_gather_direct_next};
