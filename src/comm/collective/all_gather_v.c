/* all_gather_v: every rank's elements to all, each rank as many as it has. */
#include "comm/collective/collective.h"

tt_status tt_all_gather_v_with(const tt_all_gather_v_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_gather_v_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_counts(a->group, "all_gather_v", a->recv, a->counts, a->offsets, a->dtype));
    TT__TRY(tt__check_call(a->group, "all_gather_v", a->send, a->counts[a->group->rank], a->dtype, TT_SUM, 0));
    const size_t *offsets = a->offsets ? a->offsets : tt__offsets_of(a->group, 0, a->counts);
    if (!offsets)
        return tt_last_status();
    const tt_call call = {.op = TT_OP_ALL_GATHER_V,
                          .dtype = a->dtype,
                          .count = a->counts[a->group->rank],
                          .send = a->send,
                          .recv = a->recv,
                          .recv_counts = a->counts,
                          .recv_offsets = offsets,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
