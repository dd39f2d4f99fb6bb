/* The public calls of a group: reductions, broadcast, barriers; blocks; groups and memory; sends and receives. */
#include "base/hash.h"
#include "comm/call/call.h"
#include "comm/group.h"
#include "comm/in_callback.h"
#include "comm/rankset.h"

#include <stdlib.h>

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
    TT__TRY(tt__check_call(a->group, call, NULL));
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

static tt_call new_group_call(const tt_group *group, tt_op op, int64_t timeout_ms, const char *file, int line) {
    return (tt_call){.op = op, .timeout_ms = tt__timeout_of(group, timeout_ms), .file = file, .line = line};
}

static tt_status check_new_call(tt_group *group, const char *name, const void *out, tt_work **work) {
    TT__TRY(tt__group_usable(group));
    if (!out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", name);
    if (work)
        return tt__fail(TT_ERR_INVALID, "%s: it can't be asynchronous, but .work is not NULL", name);
    return tt__may_wait(name);
}

/* Check that the list has ranks of the group, each at most once. The hash of the list is the call's tag. */
static tt_status check_ranks(const tt_group *group, const int *ranks, int64_t count, int *tag) {
    tt__rankset seen = {0};
    uint64_t hash = TT__FNV;
    if (!ranks || count < 1 || count > group->size)
        return tt__fail(TT_ERR_INVALID, "new_group: expected a list of 1 to %d ranks, got %s of %lld", group->size,
                        ranks ? "one" : "NULL", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size)
            return tt__fail(TT_ERR_INVALID, "new_group: expected ranks from 0 to %d, got %d", group->size - 1,
                            ranks[i]);
        if (tt__rankset_has(&seen, ranks[i]))
            return tt__fail(TT_ERR_INVALID, "new_group: rank %d appears twice", ranks[i]);
        tt__rankset_add(&seen, ranks[i]);
        hash = tt__fnv_number(hash, (uint64_t)ranks[i]);
    }
    *tag = (int)(uint32_t)(hash ^ hash >> 32);
    return TT_OK;
}

tt_status tt_new_group_with(const tt_new_group_args *args, size_t size) {
    TT__CALL_ARGS(tt_new_group_args, a);
    if (a->out)
        *a->out = NULL;
    TT__TRY(check_new_call(a->group, "new_group", a->out, a->work));
    tt_call call = new_group_call(a->group, TT_OP_NEW_GROUP, a->timeout_ms, a->file, a->line);
    TT__TRY(check_ranks(a->group, a->ranks, a->count, &call.tag));
    call.count = a->count;
    return a->group->engine->new_group(a->group, &call, a->ranks, (size_t)a->count, a->out);
}

tt_status tt_group_split_with(const tt_group_split_args *args, size_t size) {
    TT__CALL_ARGS(tt_group_split_args, a);
    if (a->out)
        *a->out = NULL;
    TT__TRY(check_new_call(a->group, "split", a->out, a->work));
    const tt_call call = new_group_call(a->group, TT_OP_SPLIT, a->timeout_ms, a->file, a->line);
    return a->group->engine->split(a->group, &call, a->color < 0 ? -1 : a->color, a->key, a->out);
}

tt_status tt_group_alloc_with(const tt_group_alloc_args *args, size_t size) {
    TT__CALL_ARGS(tt_group_alloc_args, a);
    if (a->out)
        *a->out = NULL;
    TT__TRY(check_new_call(a->group, "alloc", a->out, a->work));
    tt_call call = new_group_call(a->group, TT_OP_ALLOC, a->timeout_ms, a->file, a->line);
    call.count = (int64_t)a->bytes; /* engines take the count for bytes */
    return a->group->engine->alloc(a->group, &call, a->out);
}

tt_status tt_group_free_with(const tt_group_free_args *args, size_t size) {
    TT__CALL_ARGS(tt_group_free_args, a);
    TT__TRY(check_new_call(a->group, "free", a, a->work));
    const tt_call call = new_group_call(a->group, TT_OP_FREE, a->timeout_ms, a->file, a->line);
    return a->group->engine->free(a->group, &call, a->ptr);
}

static tt_status check_message(tt_group *group, const tt_call *call, const void *buf) {
    bool is_recv = call->op == TT_OP_RECV, any = is_recv && call->root == TT_ANY_SOURCE;
    TT__TRY(tt__check_call(group, call, buf));
    if (!any && (call->root < 0 || call->root >= group->size))
        return tt__fail(TT_ERR_INVALID, "%s: expected a peer from 0 to %d%s, got %d", tt_op_name(call->op),
                        group->size - 1, is_recv ? " or TT_ANY_SOURCE" : "", call->root);
    if (call->tag < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a tag of 0 or more, got %d", tt_op_name(call->op), call->tag);
    return TT_OK;
}

static tt_status submit_message(tt_group *group, tt_call *call, tt_work **work) {
    TT__TRY(tt__check_group(group, work));
    TT__TRY(check_message(group, call, call->op == TT_OP_RECV ? call->recv : call->send));
    return tt__submit_checked(group, call, work);
}

tt_status tt_send_with(const tt_send_args *args, size_t size) {
    TT__CALL_ARGS(tt_send_args, a);
    tt_call call = TT__CALL_OF(TT_OP_SEND, a, .dtype = a->dtype, .root = a->peer, .tag = a->tag, .count = a->count,
                               .send = a->buf);
    return submit_message(a->group, &call, a->work);
}

tt_status tt_recv_with(const tt_recv_args *args, size_t size) {
    TT__CALL_ARGS(tt_recv_args, a);
    tt_call call = TT__CALL_OF(TT_OP_RECV, a, .dtype = a->dtype, .root = a->peer, .tag = a->tag, .count = a->count,
                               .recv = a->buf);
    if (a->work || !a->source)
        return submit_message(a->group, &call, a->work);
    tt_work *work = NULL;
    *a->source = -1;
    TT__TRY(tt__may_wait("recv"));
    TT__TRY(submit_message(a->group, &call, &work));
    tt_status status = tt_work_wait(work);
    if (!status)
        *a->source = tt_work_source_rank(work);
    if (!status && *a->source < 0) /* on a device the message may still be on its way */
        *a->source = a->peer;
    tt_work_free(work);
    return status;
}

static tt_status check_op(tt_group *group, const tt_p2p_op *op) {
    const tt_call call = {.op = op->is_recv ? TT_OP_RECV : TT_OP_SEND,
                          .dtype = op->dtype,
                          .root = op->peer,
                          .tag = op->tag,
                          .count = op->count};
    return check_message(group, &call, op->is_recv ? op->recv : op->send);
}

static tt_status check_ops(const tt_batch_isend_irecv_args *a) {
    if (a->count < 0)
        return tt__fail(TT_ERR_INVALID, "batch_isend_irecv: expected 0 or more operations, got %lld",
                        (long long)a->count);
    if (!a->ops && a->count)
        return tt__fail(TT_ERR_INVALID, "batch_isend_irecv: the list of %lld operations is NULL", (long long)a->count);
    for (int64_t i = 0; i < a->count; i++)
        if (check_op(a->group, &a->ops[i]))
            return tt__fail_prefix("batch_isend_irecv: operation %lld", (long long)i);
    return TT_OK;
}

tt_status tt_batch_isend_irecv_with(const tt_batch_isend_irecv_args *args, size_t size) {
    TT__CALL_ARGS(tt_batch_isend_irecv_args, a);
    tt_call call = TT__CALL_OF(TT_OP_BATCH_ISEND_IRECV, a, .count = a->count, .ops = a->ops, .buffers = a->count);
    TT__TRY(tt__check_group(a->group, a->work));
    TT__TRY(check_ops(a));
    return tt__submit_checked(a->group, &call, a->work);
}
