/* barrier: an agreement on a call that moves nothing. And what else is little more than an agreement: an exchange of a
 * few bytes, which come with the words (new_group, split, alloc, free). */
#include "comm/collective/collective.h"

#include <string.h>

tt_status tt_barrier_with(const tt_barrier_args *args, size_t size) {
    TT__CALL_ARGS(tt_barrier_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__group_usable(a->group));
    const tt_call call = {
        .op = TT_OP_BARRIER, .timeout_ms = tt__timeout_of(a->group, a->timeout_ms), .file = a->file, .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
