/* Reduction of symmetric buffers: each rank reduces its slice of all ranks' buffers and stores it where it belongs,
 * into every buffer or into the root's. Slices don't overlap, so ranks need no order among themselves; the result is
 * complete when all have finished. Per rank of N, with n bytes: 2 synchronisations, n bytes read, n (to a root: n / N)
 * written, no copy. */
#include "comm/collective/shared/shared_algorithms.h"

#include "base/dtype.h"

void tt__reduce_own_slice(const tt_group *group, uint32_t seq, const tt_call *call) {
    void *buffers[TT__MAX_HOST_RANKS];
    double factors[TT__MAX_HOST_RANKS];
    size_t size = tt__dtype_size(call->dtype);
    tt__slice slice = tt__slice_of(call->count, size, group->size, group->rank);
    bool all = call->op == TT_OP_ALL_REDUCE;
    for (int r = 0; r < group->size; r++) {
        void *buffer = r == group->rank ? call->recv : tt__symmetric(group, r, seq);
        buffers[r] = (unsigned char *)buffer + slice.at * size;
        factors[r] = tt__factor(group, r, seq);
    }
    if (slice.n)
        tt__reduce_tree_scaled(all ? buffers : &buffers[call->root], all ? group->size : 1,
                               (const void *const *)buffers, factors, group->size, slice.n, call->dtype,
                               call->reduce_op);
}

static tt__next symmetric_next(tt_work *work) {
    if (work->stage++)
        return TT__NEXT_DONE;
    uint32_t step = tt__plan_steps(work->group, 1) + 1;
    tt__reduce_own_slice(work->group, work->seq, &work->call);
    tt__finish_step(work->group, step);
    return tt__work_wait_last(work, step);
}

/* Does it serve the work? In a group of one rank no peer reads the buffer. */
static bool symmetric_serves(const tt_work *work) { return work->symmetric || work->group->size == 1; }

const tt__algorithm tt__all_reduce_symmetric = {.name = "symmetric",
                                                .op = TT_OP_ALL_REDUCE,
                                                .shared = true,
                                                .serves_words = symmetric_serves,
                                                .next = symmetric_next};
const tt__algorithm tt__reduce_symmetric = {
    .name = "symmetric", .op = TT_OP_REDUCE, .shared = true, .serves_words = symmetric_serves, .next = symmetric_next};
