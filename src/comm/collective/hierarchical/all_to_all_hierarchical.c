/* hierarchical, for all_to_all: what a host sends to another goes as one message for each of its ranks, not for each
 * pair.
 *
 * H hosts of L ranks, blocks of m bytes; ranks may be numbered in any order.
 *   inside    rank number l of this host gets, of all its ranks, the blocks for number l of every host: an all_to_all
 *             of H m
 *   between   an all_to_all of L m among the ranks with the same number: each block is where it belongs
 *   steps between hosts    those of an all_to_all among H
 *   messages               H-1 a rank; direct N-1
 *   bytes between hosts    the same as of any other algorithm
 *   copied                 3 N m, and in and out of shared memory
 * For small blocks. Traeff and Rougier: MPI collectives and datatypes for hierarchical all-to-all communication,
 * EuroMPI 2014. */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

enum stage { INSIDE, BETWEEN, UNPACK };

typedef struct state {
    unsigned char *out, *in; /* (N) blocks each */
    uint64_t block;          /* bytes */
} state;

/* out (columns, rows) := in (rows, columns). */
static void transpose_blocks(const state *s, int rows, int columns) {
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            tt__copy_block((tt__rank_block){s->out + (size_t)(c * rows + r) * s->block, s->block},
                           s->in + (size_t)(r * columns + c) * s->block);
}

/* out (L, H): ordered by the receiver's number, then by its host. */
static tt_status hier_all_to_all_pack(tt_work *work) {
    const tt_group *group = work->group;
    state *s = TT__STATE(state, work);
    size_t block = work->call.count * tt_dtype_size(work->call.dtype), all = block * (size_t)group->size;
    TT__TRY(tt__machine_scratch(work, 2 * all));
    *s = (state){tt__machine_memory(work), tt__machine_memory(work) + all, block};
    unsigned char *to = s->out;
    for (int l = 0; l < group->native->local->size; l++)
        for (int h = 0; h < group->native->cross->size; h++, to += block)
            tt__copy_block((tt__rank_block){to, block}, tt__send_block(&work->call, tt__rank_on(group, h, l)).data);
    return TT_OK;
}

/* in (H, L): ordered by the sender's host, then by its number. */
static void hier_all_to_all_unpack(const tt_work *work, const state *s) {
    for (int i = 0; i < work->group->size; i++)
        tt__copy_block(tt__recv_block(&work->call, work->group->native->by_host[i]), s->in + (size_t)i * s->block);
}

static tt__next hier_all_to_all_leg(tt_work *work, const state *s, tt_group *group, int blocks) {
    return tt__leg(
        work, group,
        (tt_call){.op = TT_OP_ALL_TO_ALL, .count = work->call.count * (size_t)blocks, .send = s->out, .recv = s->in});
}

static tt__next hier_all_to_all_next(tt_work *work) {
    tt_group *local = work->group->native->local, *cross = work->group->native->cross;
    const state *s = TT__STATE(state, work);
    switch (work->stage++) {
    case INSIDE:
        return hier_all_to_all_pack(work) ? TT__NEXT_FAILED : hier_all_to_all_leg(work, s, local, cross->size);
    case BETWEEN:
        transpose_blocks(s, local->size, cross->size);
        return hier_all_to_all_leg(work, s, cross, local->size);
    default:
        hier_all_to_all_unpack(work, s);
        return TT__NEXT_DONE;
    }
}

const tt__algorithm tt__all_to_all_hierarchical = {"hierarchical", TT_OP_ALL_TO_ALL, .children = true,
                                                   .serves = tt__serves_hosts, .next = hier_all_to_all_next};
