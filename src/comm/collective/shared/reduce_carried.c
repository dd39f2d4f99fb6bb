/* all_reduce of plain buffers of middle size on shared memory: with its arrival word each rank gives the others copies
 * of the slices that they are to reduce. Each reduces its slice over its buffer and these copies, into its buffer and
 * into the copies, and takes the others' slices from its own copies when all have done so. Per rank of N, with n bytes:
 * 2 synchronisations, n (N-1)/N copied in, n read, n written, n (N-1)/N copied out.
 *
 * It is one piece of reduce_staged.c, whose first step is the arrival. */
#include "comm/collective/shared/shared_algorithms.h"

#include "base/dtype.h"

#include <string.h>

/* Copy all but this rank's slice. */
static void copy_others_slices(const tt_group *group, const tt_call *call, void *dst, const void *src) {
    size_t size = tt__dtype_size(call->dtype), bytes = call->count * size;
    tt__slice slice = tt__slice_of(call->count, size, group->size, group->rank);
    size_t before = slice.at * size, after = before + slice.n * size;
    memcpy(dst, src, before);
    memcpy((unsigned char *)dst + after, (const unsigned char *)src + after, bytes - after);
}

void tt__carried_give(const tt_group *group, uint32_t seq, const tt_call *call) {
    size_t bytes = call->count * tt__dtype_size(call->dtype);
    copy_others_slices(group, call, tt__payload(group, group->rank, seq, bytes), call->send);
}

static void carried_reduce(const tt_group *group, uint32_t seq, const tt_call *call) {
    void *at[TT__MAX_HOST_RANKS];
    double factors[TT__MAX_HOST_RANKS];
    size_t size = tt__dtype_size(call->dtype), bytes = call->count * size;
    tt__slice slice = tt__slice_of(call->count, size, group->size, group->rank);
    for (int r = 0; r < group->size; r++) {
        void *elements = r == group->rank ? call->recv : tt__payload(group, r, seq, bytes);
        at[r] = (unsigned char *)elements + slice.at * size;
        factors[r] = tt__factor(group, r, seq);
    }
    if (slice.n)
        tt__reduce_tree_scaled(at, group->size, (const void *const *)at, factors, group->size, slice.n, call->dtype,
                               call->reduce_op);
}

static void carried_collect(const tt_group *group, uint32_t seq, const tt_call *call) {
    size_t bytes = call->count * tt__dtype_size(call->dtype);
    copy_others_slices(group, call, call->recv, tt__payload(group, group->rank, seq, bytes));
}

static tt__next carried_next(tt_work *work) {
    if (work->stage++) {
        carried_collect(work->group, work->seq, &work->call);
        return TT__NEXT_DONE;
    }
    uint32_t step = tt__plan_steps(work->group, 1) + 1;
    carried_reduce(work->group, work->seq, &work->call);
    tt__finish_step(work->group, step);
    return tt__work_wait_steps(work, step);
}

/* Smaller buffers go inline. Buffers that are symmetric on some ranks only go through staging memory. */
static bool carried_serves(const tt_work *work) {
    size_t bytes = work->call.count * tt_dtype_size(work->call.dtype);
    return bytes > TT__INLINE_MAX && bytes <= TT__CARRIED_MAX && !tt__any_symmetric(work->group, work->seq);
}

const tt__algorithm tt__all_reduce_carried = {
    .name = "carried", .op = TT_OP_ALL_REDUCE, .shared = true, .serves_words = carried_serves, .next = carried_next};
