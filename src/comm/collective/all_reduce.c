/* all_reduce: op over all ranks, to all. On shared memory
 *
 *   up to TT__INLINE_MAX bytes   reduce_inline.c     1 synchronisation, every rank reduces all
 *   symmetric on all ranks       reduce_symmetric.c  2 synchronisations, no copy
 *   else                         reduce_staged.c     2 synchronisations a piece, overlapped */
#include "comm/collective/collective.h"

tt_status tt_all_reduce_with(const tt_all_reduce_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_reduce_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "all_reduce", a->buf, a->count, a->dtype, a->op, 0));
    const tt_call call = {.op = TT_OP_ALL_REDUCE,
                          .dtype = a->dtype,
                          .reduce_op = a->op,
                          .factor = a->factor,
                          .count = a->count,
                          .send = a->buf,
                          .recv = a->buf,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
