/* Reduction of small buffers on shared memory: each rank's elements came with its arrival word, so nothing more is to be waited for. Every rank that wants
 * the result reduces all of them itself, in the same order and with the same code, so all get the same bits.
 * Per rank: 1 synchronisation, (ranks - 1) * bytes read from peers. */
#include "comm/collective/collective.h"
#include "comm/reduce_tree.h"

static tt__next next(tt_work *work) {
    const tt_group *group = work->group;
    const tt_call *call = &work->call;
    const void *src[TT__MAX_WORLD];
    double factors[TT__MAX_WORLD];
    size_t bytes = call->count * tt_dtype_size(call->dtype);
    if (!bytes || (call->op == TT_OP_REDUCE && call->root != group->rank))
        return TT__NEXT_DONE;
    for (int r = 0; r < group->size; r++) {
        src[r] = tt__payload(group, r, work->seq, bytes);
        factors[r] = tt__factor(group, r, work->seq);
    }
    tt__reduce_tree_scaled(&(void *){call->recv}, 1, src, factors, group->size, call->count, call->dtype,
                           call->reduce_op);
    return TT__NEXT_DONE;
}

const tt__algorithm tt__all_reduce_inline = {
    .name = "inline", .op = TT_OP_ALL_REDUCE, .shared = true, .serves = tt__fits_inline, .next = next};
const tt__algorithm tt__reduce_inline = {
    .name = "inline", .op = TT_OP_REDUCE, .shared = true, .serves = tt__fits_inline, .next = next};
