/* Reduction of small buffers on shared memory: each rank's elements came with its arrival word, so no rank waits for
 * more. Every rank that wants the result reduces all of them itself, in the same order and with the same code, so all
 * get the same bits. Per rank: 1 synchronisation, (ranks - 1) * bytes read from peers.
 *
 * Some ranks may instead have published where their symmetric buffers lie. Peers read these in place, so the owners may
 * not write the result there yet. They keep it in their slot, which has no payload then, until all have finished the
 * one step. */
#include "comm/collective/shared/shared_algorithms.h"

#include "base/dtype.h"

#include <string.h>

static size_t inline_bytes_of(const tt_work *work) { return work->call.count * tt_dtype_size(work->call.dtype); }

static bool inline_wants_result(const tt_work *work) {
    return work->call.op == TT_OP_ALL_REDUCE || work->call.root == work->group->rank;
}

/* Return where this rank keeps the result until nobody reads its buffer any more. */
static void *result_room(const tt_work *work) {
    size_t bytes = inline_bytes_of(work);
    return tt__payload(work->group, work->group->rank, work->seq, bytes > TT__NEAR_MAX ? bytes : TT__INLINE_MAX);
}

void tt__reduce_arrived(const tt_group *group, uint32_t seq, const tt_call *call, void *result) {
    const void *src[TT__MAX_HOST_RANKS];
    double factors[TT__MAX_HOST_RANKS];
    size_t bytes = call->count * tt__dtype_size(call->dtype);
    for (int r = 0; r < group->size; r++) {
        src[r] = tt__is_symmetric(group, r, seq) ? tt__symmetric(group, r, seq) : tt__payload(group, r, seq, bytes);
        factors[r] = tt__factor(group, r, seq);
    }
    tt__reduce_tree_scaled(&result, 1, src, factors, group->size, call->count, call->dtype, call->reduce_op);
}

static tt__next inline_next(tt_work *work) {
    bool in_place = tt__is_symmetric(work->group, work->group->rank, work->seq);
    if (work->stage++) {
        if (inline_wants_result(work))
            memcpy(work->call.recv, result_room(work), inline_bytes_of(work));
        return TT__NEXT_DONE;
    }
    if (inline_wants_result(work) && inline_bytes_of(work))
        tt__reduce_arrived(work->group, work->seq, &work->call, in_place ? result_room(work) : work->call.recv);
    if (!tt__any_symmetric(work->group, work->seq))
        return TT__NEXT_DONE;
    uint32_t step = tt__plan_steps(work->group, 1) + 1;
    tt__finish_step(work->group, step);
    return in_place ? tt__work_wait_steps(work, step) : TT__NEXT_DONE;
}

static bool inline_serves(const tt_work *work) {
    return inline_bytes_of(work) <= tt__inline_max(work->group, work->call.op) && !work->symmetric;
}

const tt__algorithm tt__all_reduce_inline = {
    .name = "inline", .op = TT_OP_ALL_REDUCE, .shared = true, .serves_words = inline_serves, .next = inline_next};
const tt__algorithm tt__reduce_inline = {
    .name = "inline", .op = TT_OP_REDUCE, .shared = true, .serves_words = inline_serves, .next = inline_next};
