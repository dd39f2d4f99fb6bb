/* neighbor_exchange, for all_gather: ranks 2p and 2p+1 are pair p. In step 0 the two ranks of a pair exchange their
 * blocks; from then on whole pairs of blocks travel, those that came last, in odd steps to the neighbour outside the
 * pair, in even steps to the one inside.
 *
 * N ranks, an even number; blocks of m bytes.
 *   steps              N/2
 *   bytes sent a rank  (N-1) m
 * Half the steps of ring, to the same neighbours: for long blocks and many ranks.
 * Chen, Zhang, Zhang, Yuan: Performance evaluation of allgather algorithms on terascale Linux cluster with fast
 * Ethernet, 2005. */
#include "comm/collective/message/rounds.h"

static tt_status neighbor_exchange_plan(tt_work *work) {
    tt__copy_block(tt__recv_block(&work->call, work->group->rank), work->call.send);
    return tt__rounds_plan(work, (uint32_t)work->group->size / 2, 2);
}

static int neighbor_in_round(const tt_group *group, uint32_t round) {
    bool even = group->rank % 2 == 0, inside = round % 2 == 0;
    return tt__neighbour(group, even == inside ? 1 : -1);
}

/* Return the two blocks that this rank receives in a round, its own pair's in round 0. Pairs come from both sides in
 * turn: an even rank hears of those before its own in odd rounds, of those behind it in even ones; an odd rank the
 * other way round. */
static tt__rank_block pair_received_in(const tt_work *work, uint32_t round) {
    int pairs = work->group->size / 2, far = (int)(round + 1) / 2;
    bool before = (work->group->rank % 2 == 0) == (round % 2 == 1);
    int pair = (work->group->rank / 2 + (before ? pairs - far : far)) % pairs;
    tt__rank_block first = tt__recv_block(&work->call, 2 * pair);
    return (tt__rank_block){first.data, 2 * first.bytes};
}

static void neighbor_exchange_early(tt_work *work, uint32_t round) {
    int from = neighbor_in_round(work->group, round);
    tt__rank_block theirs = round ? pair_received_in(work, round) : tt__recv_block(&work->call, from);
    tt__round_recv(work, round, from, round, theirs.data, theirs.bytes);
}

static void neighbor_exchange_post(tt_work *work, uint32_t round) {
    tt__rank_block last = round ? pair_received_in(work, round - 1) : tt__recv_block(&work->call, work->group->rank);
    tt__round_send(work, round, neighbor_in_round(work->group, round), round, last.data, last.bytes);
}

static tt__next neighbor_exchange_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = neighbor_exchange_plan, .early = neighbor_exchange_early, .post = neighbor_exchange_post};
    return tt__rounds_next(work, &rounds);
}

static bool neighbor_exchange_serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size % 2 == 0;
}

const tt__algorithm tt__all_gather_neighbor_exchange = {
    "neighbor_exchange", TT_OP_ALL_GATHER, .serves = neighbor_exchange_serves, .next = neighbor_exchange_next};
