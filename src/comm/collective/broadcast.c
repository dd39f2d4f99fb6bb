/* broadcast: the root's elements to all. On shared memory: blocks_shared.c. */
#include "comm/collective/collective.h"

tt_status tt_broadcast_with(const tt_broadcast_args *args, size_t size) {
    TT__CALL_ARGS(tt_broadcast_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_call(a->group, "broadcast", a->buf, a->count, a->dtype, TT_SUM, a->root));
    const tt_call call = {.op = TT_OP_BROADCAST,
                          .dtype = a->dtype,
                          .root = a->root,
                          .count = a->count,
                          .send = a->buf,
                          .recv = a->buf,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
