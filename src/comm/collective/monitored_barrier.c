/* monitored_barrier: a barrier that names all who did not come. */
#include "comm/collective/collective.h"

tt_status tt_monitored_barrier_with(const tt_barrier_args *args, size_t size) {
    TT__CALL_ARGS(tt_barrier_args, a);
    TT__TRY(tt__group_usable(a->group));
    if (a->work)
        return tt__fail(TT_ERR_INVALID, "monitored_barrier: it can't be asynchronous, but .work is not NULL");
    const tt_call call = {.op = TT_OP_MONITORED_BARRIER,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, NULL);
}
