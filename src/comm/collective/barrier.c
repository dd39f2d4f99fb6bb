/* barrier: an agreement on a call that moves nothing. */
#include "comm/collective/collective.h"

tt_status tt_barrier_with(const tt_barrier_args *args, size_t size) {
    TT__CALL_ARGS(tt_barrier_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__group_usable(a->group));
    const tt_call call = {
        .op = TT_OP_BARRIER, .timeout_ms = tt__timeout_of(a->group, a->timeout_ms), .file = a->file, .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
