/* all_reduce: op over all ranks, to all. On shared memory
 *
 *   symmetric on all ranks, and more
 *   than TT__RIDE_MAX bytes           reduce_symmetric.c  2 synchronisations, no copy
 *   else up to TT__INLINE_MAX bytes   reduce_inline.c     1 synchronisation (2 where some are symmetric), every rank
 *                                     reduces all
 *   else                              reduce_staged.c     2 synchronisations a piece, overlapped
 *
 * Up to TT__INLINE_MAX bytes symmetric buffers go inline, too, where ranks share CPUs, since a synchronisation costs
 * more there than reducing everything everywhere. native/all_reduce_fast.c is a short way through the first two. */
#include "comm/collective/collective.h"

tt_call tt__all_reduce_call(const tt_all_reduce_args *a) {
    return (tt_call){.op = TT_OP_ALL_REDUCE,
                     .dtype = a->dtype,
                     .reduce_op = a->op,
                     .factor = a->factor,
                     .count = a->count,
                     .send = a->buf,
                     .recv = a->buf,
                     .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                     .file = a->file,
                     .line = a->line};
}

tt_status tt_all_reduce_with(const tt_all_reduce_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_reduce_args, a);
    tt_status status;
    if (__builtin_expect(a->group && a->group->all_reduce_fast, 1) && a->group->all_reduce_fast(a, &status))
        return status;
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "all_reduce", a->buf, a->count, a->dtype, a->op, 0));
    const tt_call call = tt__all_reduce_call(a);
    return tt__submit(a->group, &call, a->work);
}
