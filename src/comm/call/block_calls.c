/* Calls in which every rank sends blocks to others or receives theirs; of one size, or of a size each. */
#include "comm/call/call.h"

#include "comm/collective/collective.h"

#include <stdlib.h>

/* Check the buffer that every rank has, then the one that only the root may have, and submit the call. */
static tt_status submit_blocks(tt_group *group, tt_call *call, tt_work **work) {
    bool has_root = call->op == TT_OP_GATHER || call->op == TT_OP_SCATTER, from_root = call->op == TT_OP_SCATTER;
    TT__TRY(tt__check_group(group, work));
    TT__TRY(tt__check_call(group, call, from_root ? call->recv : call->send));
    if (!has_root || group->rank == call->root)
        TT__TRY(tt__check_call(group, call, from_root ? call->send : call->recv));
    return tt__submit_checked(group, call, work);
}

tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_gather_args, a);
    tt_call call =
        TT__CALL_OF(TT_OP_ALL_GATHER, a, .dtype = a->dtype, .count = a->count, .send = a->send, .recv = a->recv);
    return submit_blocks(a->group, &call, a->work);
}

tt_status tt_all_to_all_with(const tt_all_to_all_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_to_all_args, a);
    tt_call call =
        TT__CALL_OF(TT_OP_ALL_TO_ALL, a, .dtype = a->dtype, .count = a->count, .send = a->send, .recv = a->recv);
    return submit_blocks(a->group, &call, a->work);
}

tt_status tt_gather_with(const tt_gather_args *args, size_t size) {
    TT__CALL_ARGS(tt_gather_args, a);
    tt_call call = TT__CALL_OF(TT_OP_GATHER, a, .dtype = a->dtype, .root = a->root, .count = a->count, .send = a->send,
                               .recv = a->recv);
    return submit_blocks(a->group, &call, a->work);
}

tt_status tt_scatter_with(const tt_scatter_args *args, size_t size) {
    TT__CALL_ARGS(tt_scatter_args, a);
    tt_call call = TT__CALL_OF(TT_OP_SCATTER, a, .dtype = a->dtype, .root = a->root, .count = a->count, .send = a->send,
                               .recv = a->recv);
    return submit_blocks(a->group, &call, a->work);
}

/* Make the list of offsets that the caller left out: one block after the other. It lies in the group's scratch list
 * `which`, 0 or 1. NULL: no memory. */
static const int64_t *offsets_of(tt_group *group, int which, const int64_t *counts) {
    size_t n = (size_t)group->size;
    if (!group->offsets && !(group->offsets = calloc(2 * n, sizeof *group->offsets)))
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a list of %zu offsets", n);
    int64_t *offsets = group->offsets + (which ? n : 0), at = 0;
    for (size_t r = 0; r < n; at += counts[r++])
        offsets[r] = at;
    return offsets;
}

tt_status tt_all_gather_v_with(const tt_all_gather_v_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_gather_v_args, a);
    tt_call call = TT__CALL_OF(TT_OP_ALL_GATHER_V, a, .dtype = a->dtype, .send = a->send, .recv = a->recv,
                               .recv_counts = a->counts, .recv_offsets = a->offsets);
    TT__TRY(tt__check_group(a->group, a->work));
    TT__TRY(tt__check_lists(a->group, &call, a->recv, &(tt__lists_of){"", a->counts, a->offsets}));
    call.count = a->counts[a->group->rank];
    TT__TRY(tt__check_call(a->group, &call, a->send));
    if (!call.recv_offsets && !(call.recv_offsets = offsets_of(a->group, 0, a->counts)))
        return tt_last_status();
    return tt__submit_checked(a->group, &call, a->work);
}

tt_status tt_all_to_all_v_with(const tt_all_to_all_v_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_to_all_v_args, a);
    tt_call call = TT__CALL_OF(TT_OP_ALL_TO_ALL_V, a, .dtype = a->dtype, .send = a->send, .recv = a->recv,
                               .send_counts = a->send_counts, .send_offsets = a->send_offsets,
                               .recv_counts = a->recv_counts, .recv_offsets = a->recv_offsets);
    const tt__lists_of send = {"send ", a->send_counts, a->send_offsets};
    const tt__lists_of recv = {"receive ", a->recv_counts, a->recv_offsets};
    TT__TRY(tt__check_group(a->group, a->work));
    TT__TRY(tt__check_lists(a->group, &call, a->send, &send));
    TT__TRY(tt__check_lists(a->group, &call, a->recv, &recv));
    if (!call.send_offsets && !(call.send_offsets = offsets_of(a->group, 0, a->send_counts)))
        return tt_last_status();
    if (!call.recv_offsets && !(call.recv_offsets = offsets_of(a->group, 1, a->recv_counts)))
        return tt_last_status();
    for (int r = 0; r < a->group->size; r++)
        call.count += a->send_counts[r];
    return tt__submit_checked(a->group, &call, a->work);
}
