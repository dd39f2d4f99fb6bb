/* direct and pairwise, for all_to_all and all_to_all_v: every block straight to its rank.
 *
 * N ranks, blocks of m bytes.
 *   steps              direct 1; pairwise N-1: in step s to the rank s places after, from the rank s places before
 *   bytes sent a rank  (N-1) m
 * direct has all messages under way at once and serves up to 64 ranks; pairwise at most two each way, so that nobody is
 * flooded. Sizes of the uneven form are checked by the messages, which are sent even if empty. */
#include "comm/collective/message/rounds.h"

static bool all_to_all_pairwise_is_direct(const tt_work *work) {
    return work->algorithm == &tt__all_to_all_direct || work->algorithm == &tt__all_to_all_v_direct;
}

static tt_status all_to_all_pairwise_plan(tt_work *work) {
    int rank = work->group->rank, others = work->group->size - 1;
    tt__copy_block(tt__recv_block(&work->call, rank), tt__send_block(&work->call, rank).data);
    return all_to_all_pairwise_is_direct(work) ? tt__rounds_plan(work, 1, 2 * (uint32_t)others)
                                               : tt__rounds_plan(work, (uint32_t)others, 2);
}

static void all_to_all_pairwise_exchange(tt_work *work, uint32_t round, int places) {
    int to = tt__neighbour(work->group, places), from = tt__neighbour(work->group, -places);
    tt__rank_block in = tt__recv_block(&work->call, from), out = tt__send_block(&work->call, to);
    tt__round_recv(work, round, from, 0, in.data, in.bytes);
    tt__round_send(work, round, to, 0, out.data, out.bytes);
}

static void all_to_all_pairwise_early(tt_work *work, uint32_t round) {
    if (!all_to_all_pairwise_is_direct(work))
        all_to_all_pairwise_exchange(work, round, (int)round + 1);
    for (int i = 1; i < work->group->size && all_to_all_pairwise_is_direct(work); i++)
        all_to_all_pairwise_exchange(work, round, i);
}

static tt__next all_to_all_pairwise_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = all_to_all_pairwise_plan, .early = all_to_all_pairwise_early};
    return tt__rounds_next(work, &rounds);
}

static bool all_to_all_pairwise_serves_direct(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size <= TT__DIRECT_RANKS;
}

const tt__algorithm tt__all_to_all_direct = {"direct", TT_OP_ALL_TO_ALL, .serves = all_to_all_pairwise_serves_direct,
                                             .next = all_to_all_pairwise_next};
const tt__algorithm tt__all_to_all_v_direct = {
    "direct", TT_OP_ALL_TO_ALL_V, .serves = all_to_all_pairwise_serves_direct, .next = all_to_all_pairwise_next};
const tt__algorithm tt__all_to_all_pairwise = {"pairwise", TT_OP_ALL_TO_ALL, .next = all_to_all_pairwise_next};
const tt__algorithm tt__all_to_all_v_pairwise = {"pairwise", TT_OP_ALL_TO_ALL_V, .next = all_to_all_pairwise_next};
