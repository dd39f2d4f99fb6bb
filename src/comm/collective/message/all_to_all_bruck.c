/* bruck, for all_to_all: a block that has to go d places makes a hop of 2^k places for each bit k of d, together with
 * all other blocks that make this hop.
 *
 * N ranks, blocks of m bytes.
 *   steps              log2 N, rounded up
 *   bytes sent a rank  at most N/2 m in each step
 *   copied             about log2 N times N m
 * Few messages, but each byte is sent several times: for small blocks and many ranks. Bruck and others, 1997: see
 * all_gather_bruck.c. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct bruck {
    tt__round_state rounds;
    uint64_t block, half;   /* bytes of a block; of the most that one step moves */
    unsigned char *blocks;  /* (N): place i has what still has to go, or has come, i places */
    unsigned char *sending; /* packed, what goes out; behind it (2) what comes in, in turn */
} bruck;

static tt_status all_to_all_bruck_plan(tt_work *work) {
    bruck *b = TT__STATE(bruck, work);
    size_t block = work->call.count * tt_dtype_size(work->call.dtype), ranks = (size_t)work->group->size;
    size_t half = block * ((ranks + 1) / 2);
    TT__TRY(tt__machine_scratch(work, block * ranks + 3 * half));
    TT__TRY(tt__rounds_plan(work, (uint32_t)tt__log2_ceil(work->group->size), 2));
    b->block = block, b->half = half;
    b->blocks = tt__machine_memory(work);
    b->sending = b->blocks + block * ranks;
    for (size_t i = 0; i < ranks; i++)
        tt__copy_block((tt__rank_block){b->blocks + i * block, block},
                       tt__send_block(&work->call, tt__neighbour(work->group, (int)i)).data);
    return TT_OK;
}

static unsigned char *receive_half(const bruck *b, uint32_t round) { return b->sending + b->half * (1 + (round & 1)); }

/* Copy the blocks that move in a round, between their places and a packed row; returns the row's bytes. Without a row:
 * only count. */
static size_t all_to_all_bruck_move(const bruck *b, const tt_work *work, uint32_t round, unsigned char *row,
                                    bool pack) {
    size_t bytes = 0;
    for (size_t i = 0; i < (size_t)work->group->size; i++) {
        unsigned char *place = b->blocks + i * b->block;
        if (!(i >> round & 1))
            continue;
        if (row)
            tt__copy_block((tt__rank_block){pack ? row + bytes : place, b->block}, pack ? place : row + bytes);
        bytes += b->block;
    }
    return bytes;
}

static void all_to_all_bruck_early(tt_work *work, uint32_t round) {
    const bruck *b = TT__STATE(bruck, work);
    tt__round_recv(work, round, tt__neighbour(work->group, -(1 << round)), round, receive_half(b, round),
                   all_to_all_bruck_move(b, work, round, NULL, true));
}

static void all_to_all_bruck_post(tt_work *work, uint32_t round) {
    const bruck *b = TT__STATE(bruck, work);
    size_t bytes = all_to_all_bruck_move(b, work, round, b->sending, true);
    tt__round_send(work, round, tt__neighbour(work->group, 1 << round), round, b->sending, bytes);
}

static void all_to_all_bruck_take(tt_work *work, uint32_t round) {
    const bruck *b = TT__STATE(bruck, work);
    all_to_all_bruck_move(b, work, round, receive_half(b, round), false);
    for (int i = 0; round + 1 == b->rounds.count && i < work->group->size; i++)
        tt__copy_block(tt__recv_block(&work->call, tt__neighbour(work->group, -i)), b->blocks + (size_t)i * b->block);
}

static tt__next all_to_all_bruck_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = all_to_all_bruck_plan,
                                      .early = all_to_all_bruck_early,
                                      .post = all_to_all_bruck_post,
                                      .take = all_to_all_bruck_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__all_to_all_bruck = {"bruck", TT_OP_ALL_TO_ALL, .next = all_to_all_bruck_next};
