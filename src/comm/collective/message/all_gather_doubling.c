/* recursive_doubling, for all_gather: in step k, ranks r and r ^ 2^k exchange the 2^k blocks that each has.
 *
 * N ranks, a power of two; blocks of m bytes.
 *   steps              log2 N
 *   bytes sent a rank  (N-1) m
 * As few steps as bruck, without its copy. */
#include "comm/collective/message/blocks.h"
#include "comm/collective/message/message_algorithms.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

static tt_status plan(tt_work *work) {
    tt__copy_block(tt__recv_block(&work->call, work->group->rank), work->call.send);
    return tt__rounds_plan(work, (uint32_t)tt__log2_ceil(work->group->size), 2);
}

/* The 2^round blocks that rank r has before a round. */
static tt__block held(const tt_work *work, int r, uint32_t round) {
    tt__block first = tt__recv_block(&work->call, r >> round << round);
    return (tt__block){first.data, first.bytes << round};
}

static void early(tt_work *work, uint32_t round) {
    int other = work->group->rank ^ 1 << round;
    tt__block theirs = held(work, other, round);
    tt__round_recv(work, round, other, round, theirs.data, theirs.bytes);
}

static void post(tt_work *work, uint32_t round) {
    tt__block mine = held(work, work->group->rank, round);
    tt__round_send(work, round, work->group->rank ^ 1 << round, round, mine.data, mine.bytes);
}

static tt__next next(tt_work *work) {
    static const tt__rounds rounds = {.plan = plan, .early = early, .post = post};
    return tt__rounds_next(work, &rounds);
}

static bool serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return (group->size & (group->size - 1)) == 0;
}

const tt__algorithm tt__all_gather_doubling = {"recursive_doubling", TT_OP_ALL_GATHER, .serves = serves, .next = next};
