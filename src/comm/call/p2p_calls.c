/* Sends and receives, one by one or in batches. */
#include "comm/call/call.h"

#include "comm/in_callback.h"
#include "comm/op.h"

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
