/* reduce_scatter: op over all ranks, of which each rank gets its part. */
#include "comm/collective/collective.h"

tt_status tt_reduce_scatter_with(const tt_reduce_scatter_args *args, size_t size) {
    TT__CALL_ARGS(tt_reduce_scatter_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "reduce_scatter", a->send, a->count, a->dtype, a->op, 0));
    TT__TRY(tt__check_call(a->group, "reduce_scatter", a->recv, a->count, a->dtype, a->op, 0));
    const tt_call call = {.op = TT_OP_REDUCE_SCATTER,
                          .dtype = a->dtype,
                          .reduce_op = a->op,
                          .factor = a->factor,
                          .count = a->count,
                          .send = a->send,
                          .recv = a->recv,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
