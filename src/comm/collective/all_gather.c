/* all_gather: every rank's elements to all. On shared memory: blocks_shared.c. */
#include "comm/collective/collective.h"

tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_gather_args, a);
    tt_call call = {.op = TT_OP_ALL_GATHER,
                    .dtype = a->dtype,
                    .count = a->count,
                    .send = a->send,
                    .recv = a->recv,
                    .timeout_ms = a->timeout_ms,
                    .file = a->file,
                    .line = a->line};
    return tt__submit_blocks(a->group, &call, a->work);
}
