/* gather: every rank's elements to the root. */
#include "comm/collective/collective.h"

tt_status tt_gather_with(const tt_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_gather_args, a);
    tt_call call = {.op = TT_OP_GATHER,
                    .dtype = a->dtype,
                    .root = a->root,
                    .count = a->count,
                    .send = a->send,
                    .recv = a->recv,
                    .timeout_ms = a->timeout_ms,
                    .file = a->file,
                    .line = a->line};
    return tt__submit_blocks(a->group, &call, a->work);
}
