/* reduce: as all_reduce, but the result goes to the root alone. The same algorithms, chosen alike. */
#include "comm/collective/collective.h"

tt_status tt_reduce_with(const tt_reduce_args *args, size_t size) {
    TT__CALL_ARGS(tt_reduce_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "reduce", a->buf, a->count, a->dtype, a->op, a->root));
    const tt_call call = {.op = TT_OP_REDUCE,
                          .dtype = a->dtype,
                          .reduce_op = a->op,
                          .root = a->root,
                          .factor = a->factor,
                          .count = a->count,
                          .send = a->buf,
                          .recv = a->buf,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
