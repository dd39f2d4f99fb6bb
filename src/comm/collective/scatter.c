/* scatter: a part of the root's elements to each rank. */
#include "comm/collective/collective.h"

tt_status tt_scatter_with(const tt_scatter_args *args, size_t size) {
    TT__CALL_ARGS(tt_scatter_args, a);
    tt_call call = {.op = TT_OP_SCATTER,
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
