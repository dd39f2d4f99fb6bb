/* all_to_all_v: to each rank as many elements as are for it. */
#include "comm/collective/collective.h"

tt_status tt_all_to_all_v_with(const tt_all_to_all_v_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_to_all_v_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__check_counts(a->group, "all_to_all_v", a->send, a->send_counts, a->send_offsets, a->dtype));
    TT__TRY(tt__check_counts(a->group, "all_to_all_v", a->recv, a->recv_counts, a->recv_offsets, a->dtype));
    const size_t *send_offsets = a->send_offsets ? a->send_offsets : tt__offsets_of(a->group, 0, a->send_counts);
    const size_t *recv_offsets = a->recv_offsets ? a->recv_offsets : tt__offsets_of(a->group, 1, a->recv_counts);
    if (!send_offsets || !recv_offsets)
        return tt_last_status();
    size_t count = 0;
    for (int r = 0; r < a->group->size; r++)
        count += a->send_counts[r];
    const tt_call call = {.op = TT_OP_ALL_TO_ALL_V,
                          .dtype = a->dtype,
                          .count = count,
                          .send = a->send,
                          .recv = a->recv,
                          .send_counts = a->send_counts,
                          .send_offsets = send_offsets,
                          .recv_counts = a->recv_counts,
                          .recv_offsets = recv_offsets,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
