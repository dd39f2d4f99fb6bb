/* gather: every rank's elements to the root. */
#include "comm/collective/collective.h"

tt_status tt_gather_with(const tt_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_gather_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "gather", a->send, a->count, a->dtype, TT_SUM, a->root));
    if (a->group->rank == a->root)
        TT__TRY(tt__check_call(a->group, "gather", a->recv, a->count, a->dtype, TT_SUM, a->root));
    const tt_call call = {.op = TT_OP_GATHER,
                          .dtype = a->dtype,
                          .root = a->root,
                          .count = a->count,
                          .send = a->send,
                          .recv = a->recv,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
