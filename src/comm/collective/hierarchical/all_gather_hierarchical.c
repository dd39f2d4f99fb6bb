/* hierarchical, for all_gather and all_gather_v: ranks with the same number inside their hosts gather between the
 * hosts, then each host gathers in shared memory, once for every host's blocks.
 *
 * H hosts of L ranks, blocks of m bytes; ranks may be numbered in any order.
 *   steps between hosts   those of an all_gather_v among H
 *   bytes between hosts   (H-1) L m sent a host; flat algorithms send up to L times as much
 *   calls inside          H; 1 up to TT__PACK_MAX bytes in all, which are packed and copied to where they belong at the
 *                         end */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct state {
    int64_t *counts, *offsets; /* of a leg, in elements */
    unsigned char *mine, *all; /* packed blocks: (H) of ranks with this rank's number; (L, H) of all. Or NULL */
} state;

static int64_t count_of(const tt_work *work, int host, int local) {
    int r = tt__rank_on(work->group, host, local);
    return work->call.recv_counts ? work->call.recv_counts[r] : work->call.count;
}

static int64_t offset_of(const tt_work *work, int host, int local) {
    int r = tt__rank_on(work->group, host, local);
    return work->call.recv_offsets ? work->call.recv_offsets[r] : r * work->call.count;
}

/* Count the bytes of all blocks of ranks with this number inside their hosts. */
static size_t hier_all_gather_bytes_of(const tt_work *work, int local) {
    size_t count = 0;
    for (int h = 0; h < work->group->native->cross->size; h++)
        count += (size_t)count_of(work, h, local);
    return count * tt_dtype_size(work->call.dtype);
}

static tt_status hier_all_gather_plan(tt_work *work) {
    state *s = TT__STATE(state, work);
    const tt_group *local = work->group->native->local, *cross = work->group->native->cross;
    size_t most = (size_t)(local->size > cross->size ? local->size : cross->size);
    size_t lists = TT__ALIGN_UP(2 * most * sizeof *s->counts, 64), all = 0,
           mine = hier_all_gather_bytes_of(work, local->rank);
    for (int l = 0; l < local->size; l++)
        all += hier_all_gather_bytes_of(work, l);
    bool packed = all <= TT__PACK_MAX;
    TT__TRY(tt__machine_scratch(work, lists + (packed ? mine + all : 0)));
    unsigned char *memory = tt__machine_memory(work);
    s->counts = (int64_t *)(void *)memory;
    s->offsets = s->counts + most;
    s->mine = packed ? memory + lists : NULL;
    s->all = packed ? s->mine + mine : NULL;
    return TT_OK;
}

/* Gather blocks among the ranks of `group`, by s->counts and s->offsets. */
static tt__next hier_all_gather_leg(tt_work *work, const state *s, tt_group *group, const void *send, void *recv) {
    return tt__leg(work, group,
                   (tt_call){.op = TT_OP_ALL_GATHER_V,
                             .count = s->counts[group->rank],
                             .send = send,
                             .recv = recv,
                             .recv_counts = s->counts,
                             .recv_offsets = s->offsets});
}

static tt__next hier_all_gather_between(tt_work *work, const state *s) {
    int mine = work->group->native->local->rank;
    int64_t at = 0;
    for (int h = 0; h < work->group->native->cross->size; at += s->counts[h++]) {
        s->counts[h] = count_of(work, h, mine);
        s->offsets[h] = s->mine ? at : offset_of(work, h, mine);
    }
    return hier_all_gather_leg(work, s, work->group->native->cross, work->call.send,
                               s->mine ? s->mine : work->call.recv);
}

/* Gather the blocks of host h inside the host, in place. */
static tt__next hier_all_gather_inside(tt_work *work, const state *s, int h) {
    tt_group *local = work->group->native->local;
    for (int l = 0; l < local->size; l++) {
        s->counts[l] = count_of(work, h, l);
        s->offsets[l] = offset_of(work, h, l);
    }
    int self = tt__rank_on(work->group, h, local->rank);
    return hier_all_gather_leg(work, s, local, tt__recv_block(&work->call, self).data, work->call.recv);
}

/* Gather the packed blocks of all hosts at once. */
static tt__next inside_packed(tt_work *work, const state *s) {
    int64_t at = 0;
    for (int l = 0; l < work->group->native->local->size; at += s->counts[l++]) {
        s->counts[l] = (int64_t)(hier_all_gather_bytes_of(work, l) / tt_dtype_size(work->call.dtype));
        s->offsets[l] = at;
    }
    return hier_all_gather_leg(work, s, work->group->native->local, s->mine, s->all);
}

static void hier_all_gather_unpack(const tt_work *work, const state *s) {
    const unsigned char *at = s->all;
    for (int l = 0; l < work->group->native->local->size; l++)
        for (int h = 0; h < work->group->native->cross->size; h++) {
            tt__rank_block block = tt__recv_block(&work->call, tt__rank_on(work->group, h, l));
            tt__copy_block(block, at);
            at += block.bytes;
        }
}

static tt__next hier_all_gather_next(tt_work *work) {
    const state *s = TT__STATE(state, work);
    int stage = work->stage++;
    if (!stage)
        return hier_all_gather_plan(work) ? TT__NEXT_FAILED : hier_all_gather_between(work, s);
    if (s->mine && stage == 1)
        return inside_packed(work, s);
    if (!s->mine && stage <= work->group->native->cross->size)
        return hier_all_gather_inside(work, s, stage - 1);
    if (s->mine)
        hier_all_gather_unpack(work, s);
    return TT__NEXT_DONE;
}

const tt__algorithm tt__all_gather_hierarchical = {"hierarchical", TT_OP_ALL_GATHER, .children = true,
                                                   .serves = tt__serves_hosts, .next = hier_all_gather_next};
const tt__algorithm tt__all_gather_v_hierarchical = {"hierarchical", TT_OP_ALL_GATHER_V, .children = true,
                                                     .serves = tt__serves_hosts, .next = hier_all_gather_next};
