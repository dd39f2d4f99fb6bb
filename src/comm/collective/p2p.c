/* send, recv, batch_isend_irecv. */
#include "comm/collective/collective.h"

static tt_status check_op(tt_group *group, const char *name, const tt_p2p_op *op) {
    bool any = op->is_recv && op->peer == TT_ANY_SOURCE;
    TT__TRY(tt__check_call(group, name, op->buf, op->count, op->dtype, TT_SUM, 0));
    if (!any && (op->peer < 0 || op->peer >= group->size))
        return tt__fail(TT_ERR_INVALID, "%s: expected a peer from 0 to %d%s, got %d", name, group->size - 1,
                        op->is_recv ? " or TT_ANY_SOURCE" : "", op->peer);
    if (op->tag < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a tag of 0 or more, got %d", name, op->tag);
    return TT_OK;
}

static tt_status submit_one(const tt_p2p_args *a, bool is_recv, tt_work **work) {
    const char *name = is_recv ? "recv" : "send";
    const tt_p2p_op op = {is_recv, a->buf, a->count, a->dtype, a->peer, a->tag};
    TT__TRY(check_op(a->group, name, &op));
    const tt_call call = {.op = is_recv ? TT_OP_RECV : TT_OP_SEND,
                          .dtype = a->dtype,
                          .root = a->peer,
                          .tag = a->tag,
                          .count = a->count,
                          .send = a->buf,
                          .recv = a->buf,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, work);
}

tt_status tt_send_with(const tt_p2p_args *args, size_t size) {
    TT__CALL_ARGS(tt_p2p_args, a);
    if (a->work)
        *a->work = NULL;
    return submit_one(a, false, a->work);
}

tt_status tt_recv_with(const tt_p2p_args *args, size_t size) {
    TT__CALL_ARGS(tt_p2p_args, a);
    if (a->work)
        *a->work = NULL;
    if (a->work || !a->source)
        return submit_one(a, true, a->work);
    tt_work *work = NULL;
    *a->source = -1;
    TT__TRY(submit_one(a, true, &work));
    tt_status status = tt_work_wait(work);
    if (!status)
        *a->source = tt_work_source_rank(work);
    tt_work_free(work);
    return status;
}

tt_status tt_batch_isend_irecv_with(const tt_batch_isend_irecv_args *args, size_t size) {
    TT__CALL_ARGS(tt_batch_isend_irecv_args, a);
    if (a->work)
        *a->work = NULL;
    TT__TRY(tt__group_usable(a->group));
    if (!a->ops && a->count)
        return tt__fail(TT_ERR_INVALID, "batch_isend_irecv: the list of %zu operations is NULL", a->count);
    for (size_t i = 0; i < a->count; i++)
        if (check_op(a->group, a->ops[i].is_recv ? "recv" : "send", &a->ops[i]))
            return tt__fail_prefix("batch_isend_irecv: operation %zu", i);
    const tt_call call = {.op = TT_OP_BATCH_ISEND_IRECV,
                          .count = a->count,
                          .ops = a->ops,
                          .buffers = a->count,
                          .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                          .file = a->file,
                          .line = a->line};
    return tt__submit(a->group, &call, a->work);
}
