/* hierarchical, for all_reduce of f16 and bf16: hosts reduce first, as in all_reduce_hierarchical.c. Sums travel as f32
 * until all ranks are in them, are rounded once, and only then handed out: so the bits are those of any other
 * algorithm.
 *
 * H hosts of L ranks, n bytes.
 *   2 n up to TT__PACK_MAX  local reduce to one rank a host, all_reduce between those, which round; local broadcast
 *   else                     local reduce_scatter, of every rank's part reduce_scatter between the hosts; what that
 *                            leaves is rounded; all_gather between the hosts and local all_gather. The buffer is filled
 *                            up so that it divides by H L
 *   steps between hosts   those of a reduce_scatter and an all_gather among H
 *   bytes between hosts   (H-1)/H (2 n + n) sent a host; flat algorithms that bring 16-bit leaves together send (H-1)/H
 *                         2 L n */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

#include <string.h>

enum stage { SCATTER = 1, REDUCE, GATHER, SPREAD, FINISH, WHOLE, LEADERS, SHARE };

typedef struct state {
    float *sums;                   /* (filled) */
    uint16_t *rounded;             /* (filled): the caller's buffer if that is as long */
    uint64_t count, part, smaller; /* elements: of the call; of a rank's part; of what is left of it between hosts */
} state;

static tt__partial hier_fp16_partial_of(const tt_work *work) { return tt__partial_of(&work->call, work->group->size); }

static tt_status hier_fp16_plan(tt_work *work) {
    state *s = TT__STATE(state, work);
    const tt__partial partial = hier_fp16_partial_of(work);
    const size_t ranks = (size_t)work->group->size, count = tt__operand_of(work).count;
    const size_t filled = (count + ranks - 1) / ranks * ranks;
    size_t sums = TT__ALIGN_UP(filled * sizeof *s->sums, 64);
    TT__TRY(tt__machine_scratch(work, sums + (filled > count ? filled * sizeof *s->rounded : 0)));
    s->count = count;
    s->smaller = filled / ranks;
    s->part = s->smaller * (size_t)work->group->native->cross->size;
    s->sums = (float *)(void *)tt__machine_memory(work);
    void *data = tt__operand_of(work).data;
    s->rounded = filled > count ? (uint16_t *)(void *)(tt__machine_memory(work) + sums) : data;
    tt__partial_leaf(&partial, s->sums, data, count);
    if (filled > count)
        memset(s->sums + count, 0, (filled - count) * sizeof *s->sums);
    work->stage = count * sizeof *s->sums <= TT__PACK_MAX ? WHOLE : SCATTER;
    return TT_OK;
}

static tt__next sum_partials(tt_work *work, tt_group *group, tt_op op, const float *send, float *recv, size_t count) {
    const tt_call call = {
        .op = op, .reduce_op = hier_fp16_partial_of(work).op, .count = count, .send = send, .recv = recv};
    return tt__leg_of(work, group, TT_F32, call);
}

static tt__next hier_fp16_move(tt_work *work, tt_group *group, tt_op op, const uint16_t *send, uint16_t *recv,
                               size_t count) {
    return tt__leg(work, group, (tt_call){.op = op, .count = count, .send = send, .recv = recv});
}

/* Round the sums, which all ranks' elements are in by now. */
static void hier_fp16_finish(const tt_work *work, uint16_t *to, const float *sums, size_t count) {
    const tt__partial partial = hier_fp16_partial_of(work);
    tt__partial_finish(&partial, to, sums, count);
}

static tt__next next_small(tt_work *work, const state *s) {
    tt_group *local = work->group->native->local, *cross = work->group->native->cross;
    void *data = tt__operand_of(work).data;
    switch (work->stage++) {
    case WHOLE:
        return sum_partials(work, local, TT_OP_REDUCE, s->sums, s->sums, s->count);
    case LEADERS:
        if (!local->rank)
            return sum_partials(work, cross, TT_OP_ALL_REDUCE, s->sums, s->sums, s->count);
        work->stage++;
        __attribute__((fallthrough));
    case SHARE:
        if (!local->rank)
            hier_fp16_finish(work, data, s->sums, s->count);
        return hier_fp16_move(work, local, TT_OP_BROADCAST, data, data, s->count);
    default:
        return TT__NEXT_DONE;
    }
}

static tt__next next_large(tt_work *work, const state *s) {
    tt_group *local = work->group->native->local, *cross = work->group->native->cross;
    size_t part = (size_t)local->rank * s->part, mine = part + (size_t)cross->rank * s->smaller;
    switch (work->stage++) {
    case SCATTER:
        return sum_partials(work, local, TT_OP_REDUCE_SCATTER, s->sums, s->sums + part, s->part);
    case REDUCE:
        return sum_partials(work, cross, TT_OP_REDUCE_SCATTER, s->sums + part, s->sums + mine, s->smaller);
    case GATHER:
        hier_fp16_finish(work, s->rounded + mine, s->sums + mine, s->smaller);
        return hier_fp16_move(work, cross, TT_OP_ALL_GATHER, s->rounded + mine, s->rounded + part, s->smaller);
    case SPREAD:
        return hier_fp16_move(work, local, TT_OP_ALL_GATHER, s->rounded + part, s->rounded, s->part);
    default:
        if (s->part * (size_t)local->size > s->count)
            memcpy(tt__operand_of(work).data, s->rounded, s->count * sizeof *s->rounded);
        return TT__NEXT_DONE;
    }
}

tt__next tt__all_reduce_hierarchical_fp16(tt_work *work) {
    const state *s = TT__STATE(state, work);
    if (!work->stage && hier_fp16_plan(work))
        return TT__NEXT_FAILED;
    return work->stage >= WHOLE ? next_small(work, s) : next_large(work, s);
}
