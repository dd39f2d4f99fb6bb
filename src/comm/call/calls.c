/* Calls on one buffer, or on none: reductions, broadcast, barriers. */
#include "comm/call/call.h"

#include "comm/collective/collective.h"
#include "comm/in_callback.h"

/* Check a call that all ranks make with one count, and submit it. */
static tt_status submit_one(tt_group *group, tt_call *call, tt_work **work) {
    TT__TRY(tt__check_group(group, work));
    TT__TRY(tt__check_call(group, call, call->send));
    if (call->recv != call->send)
        TT__TRY(tt__check_call(group, call, call->recv));
    return tt__submit_checked(group, call, work);
}

/* On shared memory
 *
 *   symmetric on all ranks, and more
 *   than TT__RIDE_MAX bytes           reduce_symmetric.c  2 synchronisations, no copy
 *   else up to TT__INLINE_MAX bytes   reduce_inline.c     1 synchronisation (2 where some are symmetric), every rank
 *                                     reduces all
 *   plain on all ranks, up to
 *   TT__CARRIED_MAX bytes             reduce_carried.c    2 synchronisations (all_reduce)
 *   else                              reduce_staged.c     3 synchronisations, 2 more a piece, overlapped
 *
 * Where ranks share CPUs a synchronisation costs more than reducing everything everywhere: there symmetric buffers go
 * inline, too, and plain ones up to tt__inline_max() bytes. native/all_reduce_fast.c is a short way through the first
 * two. */
tt_status tt_all_reduce_with(const tt_all_reduce_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_reduce_args, a);
    tt_status status;
    if (__builtin_expect(a->group && a->group->all_reduce_fast && !tt__in_callback(), 1) &&
        a->group->all_reduce_fast(a, &status))
        return status;
    TT__TRY(tt__check_group(a->group, a->work));
    tt_call call = tt__all_reduce_call(a);
    return submit_one(a->group, &call, a->work);
}

tt_status tt_reduce_with(const tt_reduce_args *args, size_t size) {
    TT__CALL_ARGS(tt_reduce_args, a);
    tt_call call = TT__CALL_OF(TT_OP_REDUCE, a, .dtype = a->dtype, .reduce_op = a->op, .root = a->root,
                               .factor = a->factor, .count = a->count, .send = a->buf, .recv = a->buf);
    return submit_one(a->group, &call, a->work);
}

tt_status tt_reduce_scatter_with(const tt_reduce_scatter_args *args, size_t size) {
    TT__CALL_ARGS(tt_reduce_scatter_args, a);
    tt_call call = TT__CALL_OF(TT_OP_REDUCE_SCATTER, a, .dtype = a->dtype, .reduce_op = a->op, .factor = a->factor,
                               .count = a->count, .send = a->send, .recv = a->recv);
    return submit_one(a->group, &call, a->work);
}

tt_status tt_broadcast_with(const tt_broadcast_args *args, size_t size) {
    TT__CALL_ARGS(tt_broadcast_args, a);
    tt_call call = TT__CALL_OF(TT_OP_BROADCAST, a, .dtype = a->dtype, .root = a->root, .count = a->count,
                               .send = a->buf, .recv = a->buf);
    return submit_one(a->group, &call, a->work);
}

static tt_status check_lists(const tt_all_reduce_coalesced_args *a) {
    if (a->buffers < 0)
        return tt__fail(TT_ERR_INVALID, "all_reduce_coalesced: expected 0 or more buffers, got %lld",
                        (long long)a->buffers);
    if (a->buffers && (!a->bufs || !a->counts))
        return tt__fail(TT_ERR_INVALID, "all_reduce_coalesced: the list of %lld %s is NULL", (long long)a->buffers,
                        a->bufs ? "counts" : "buffers");
    return TT_OK;
}

/* Check the buffers, and set call->count: of all of them together. */
static tt_status check_buffers(const tt_all_reduce_coalesced_args *a, tt_call *call) {
    int64_t sum = 0;
    TT__TRY(check_lists(a));
    for (int64_t i = 0; i < a->buffers; i++) {
        if (a->counts[i] < 0)
            return tt__fail(TT_ERR_INVALID,
                            "all_reduce_coalesced: buffer %lld: expected a count of 0 or more elements, got %lld",
                            (long long)i, (long long)a->counts[i]);
        call->count = a->counts[i];
        TT__TRY(tt__check_call(a->group, call, a->bufs[i]));
        sum += a->counts[i];
        if (sum > PTRDIFF_MAX / (int64_t)sizeof(double))
            return tt__fail(TT_ERR_INVALID, "all_reduce_coalesced: the buffers are more than memory can hold");
    }
    call->count = 0;
    TT__TRY(tt__check_call(a->group, call, ""));
    call->count = sum;
    return TT_OK;
}

tt_status tt_all_reduce_coalesced_with(const tt_all_reduce_coalesced_args *args, size_t size) {
    TT__CALL_ARGS(tt_all_reduce_coalesced_args, a);
    tt_call call = TT__CALL_OF(TT_OP_ALL_REDUCE_COALESCED, a, .dtype = a->dtype, .reduce_op = a->op,
                               .factor = a->factor, .recv_counts = a->counts, .bufs = a->bufs, .buffers = a->buffers);
    TT__TRY(tt__check_group(a->group, a->work));
    TT__TRY(check_buffers(a, &call));
    return tt__submit_checked(a->group, &call, a->work);
}

tt_status tt_barrier_with(const tt_barrier_args *args, size_t size) {
    TT__CALL_ARGS(tt_barrier_args, a);
    tt_call call = TT__CALL_OF(TT_OP_BARRIER, a, .count = 0);
    TT__TRY(tt__check_group(a->group, a->work));
    return tt__submit_checked(a->group, &call, a->work);
}

tt_status tt_monitored_barrier_with(const tt_barrier_args *args, size_t size) {
    TT__CALL_ARGS(tt_barrier_args, a);
    tt_call call = TT__CALL_OF(TT_OP_MONITORED_BARRIER, a, .count = 0);
    TT__TRY(tt__group_usable(a->group));
    if (a->work)
        return tt__fail(TT_ERR_INVALID, "monitored_barrier: it can't be asynchronous, but .work is not NULL");
    return tt__submit_checked(a->group, &call, NULL);
}
