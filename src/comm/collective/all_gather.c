/* all_gather: every rank's elements to all. On shared memory: blocks_shared.c. */
#include "comm/collective/collective.h"

tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_gather_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "all_gather", a->send, a->count, a->dtype, TT_SUM, 0));
    TT__TRY(tt__check_call(a->group, "all_gather", a->recv, a->count, a->dtype, TT_SUM, 0));
    const tt_call call = {.op = TT_OP_ALL_GATHER,
                          .dtype = a->dtype,
                          .count = a->count,
                          .send = a->send,
                          .recv = a->recv,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
