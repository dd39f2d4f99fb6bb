/* recursive_doubling, for all_gather: in step k, ranks r and r ^ 2^k exchange the 2^k blocks that each has.
 *
 * N ranks, a power of two; blocks of m bytes.
 *   steps              log2 N
 *   bytes sent a rank  (N-1) m
 * As few steps as bruck, without its copy. */
#include "comm/collective/message/rounds.h"

static tt_status all_gather_doubling_plan(tt_work *work) {
    tt__copy_block(tt__recv_block(&work->call, work->group->rank), work->call.send);
    return tt__rounds_plan(work, (uint32_t)tt__log2_ceil(work->group->size), 2);
}

/* Return the 2^round blocks that rank r has before a round. */
static tt__rank_block all_gather_doubling_held(const tt_work *work, int r, uint32_t round) {
    tt__rank_block first = tt__recv_block(&work->call, r >> round << round);
    return (tt__rank_block){first.data, first.bytes << round};
}

static void all_gather_doubling_early(tt_work *work, uint32_t round) {
    int other = work->group->rank ^ 1 << round;
    tt__rank_block theirs = all_gather_doubling_held(work, other, round);
    tt__round_recv(work, round, other, round, theirs.data, theirs.bytes);
}

static void all_gather_doubling_post(tt_work *work, uint32_t round) {
    tt__rank_block mine = all_gather_doubling_held(work, work->group->rank, round);
    tt__round_send(work, round, work->group->rank ^ 1 << round, round, mine.data, mine.bytes);
}

static tt__next all_gather_doubling_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = all_gather_doubling_plan, .early = all_gather_doubling_early, .post = all_gather_doubling_post};
    return tt__rounds_next(work, &rounds);
}

static bool all_gather_doubling_serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return (group->size & (group->size - 1)) == 0;
}

const tt__algorithm tt__all_gather_doubling = {"recursive_doubling", TT_OP_ALL_GATHER,
                                               .serves = all_gather_doubling_serves, .next = all_gather_doubling_next};
