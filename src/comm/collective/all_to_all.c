/* all_to_all: part r of every rank's elements to rank r. */
#include "comm/collective/collective.h"

tt_status tt_all_to_all_with(const tt_all_to_all_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_to_all_args, a);
    tt_call call = {.op = TT_OP_ALL_TO_ALL,
                    .dtype = a->dtype,
                    .count = a->count,
                    .send = a->send,
                    .recv = a->recv,
                    .timeout_ms = a->timeout_ms,
                    .file = a->file,
                    .line = a->line};
    return tt__submit_blocks(a->group, &call, a->work);
}
