/* bruck, for all_gather: what a rank has doubles in every step, for any number of ranks.
 *
 * N ranks, blocks of m bytes.
 *   steps              log2 N, rounded up
 *   bytes sent a rank  (N-1) m
 *   copied             N m, since blocks come in an order that begins with the rank's own
 * Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in multiport message-passing
 * systems, 1997. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct bruck {
    tt__round_state rounds;
    uint64_t block;
    unsigned char *blocks; /* (N): place i has the block of rank + i */
} bruck;

static tt_status all_gather_bruck_plan(tt_work *work) {
    bruck *b = TT__STATE(bruck, work);
    size_t block = tt__recv_block(&work->call, 0).bytes;
    TT__TRY(tt__machine_scratch(work, block * (size_t)work->group->size));
    TT__TRY(tt__rounds_plan(work, (uint32_t)tt__log2_ceil(work->group->size), 2));
    b->block = block;
    b->blocks = tt__machine_memory(work);
    tt__copy_block((tt__rank_block){b->blocks, block}, work->call.send);
    return TT_OK;
}

/* Count the blocks sent and received in a round: all that this rank has, but no more than are missing. */
static size_t blocks_in(const tt_work *work, uint32_t round) {
    int have = 1 << round, missing = work->group->size - have;
    return (size_t)(missing < have ? missing : have);
}

static void all_gather_bruck_early(tt_work *work, uint32_t round) {
    const bruck *b = TT__STATE(bruck, work);
    tt__round_recv(work, round, tt__neighbour(work->group, 1 << round), round, b->blocks + (b->block << round),
                   blocks_in(work, round) * b->block);
}

static void all_gather_bruck_post(tt_work *work, uint32_t round) {
    const bruck *b = TT__STATE(bruck, work);
    tt__round_send(work, round, tt__neighbour(work->group, -(1 << round)), round, b->blocks,
                   blocks_in(work, round) * b->block);
}

static void all_gather_bruck_take(tt_work *work, uint32_t round) {
    const bruck *b = TT__STATE(bruck, work);
    for (int i = 0; round + 1 == b->rounds.count && i < work->group->size; i++)
        tt__copy_block(tt__recv_block(&work->call, tt__neighbour(work->group, i)), b->blocks + (size_t)i * b->block);
}

static tt__next all_gather_bruck_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = all_gather_bruck_plan,
                                      .early = all_gather_bruck_early,
                                      .post = all_gather_bruck_post,
                                      .take = all_gather_bruck_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__all_gather_bruck = {"bruck", TT_OP_ALL_GATHER, .next = all_gather_bruck_next};
