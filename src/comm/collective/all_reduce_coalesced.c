/* all_reduce_coalesced: many buffers of one type reduced in one call. */
#include "comm/collective/collective.h"

static tt_status check_buffers(const tt_all_reduce_coalesced_args *a) {
    size_t sum = 0;
    TT__TRY(tt__group_usable(a->group));
    if (a->buffers && (!a->bufs || !a->counts))
        return tt__fail(TT_ERR_INVALID, "all_reduce_coalesced: the list of %zu %s is NULL", a->buffers,
                        a->bufs ? "counts" : "buffers");
    for (size_t i = 0; i < a->buffers; i++) {
        TT__TRY(tt__check_call(a->group, "all_reduce_coalesced", a->bufs[i], a->counts[i], a->dtype, a->op, 0));
        sum += a->counts[i];
        if (sum > PTRDIFF_MAX / sizeof(double))
            return tt__fail(TT_ERR_INVALID, "all_reduce_coalesced: the buffers are more than memory can hold");
    }
    return tt__check_call(a->group, "all_reduce_coalesced", "", 0, a->dtype, a->op, 0);
}

tt_status tt_all_reduce_coalesced_with(const tt_all_reduce_coalesced_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_reduce_coalesced_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(check_buffers(a));
    size_t count = 0;
    for (size_t i = 0; i < a->buffers; i++)
        count += a->counts[i];
    const tt_call call = {.op = TT_OP_ALL_REDUCE_COALESCED,
                          .dtype = a->dtype,
                          .reduce_op = a->op,
                          .factor = a->factor,
                          .count = count,
                          .recv_counts = a->counts,
                          .bufs = a->bufs,
                          .buffers = a->buffers,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
