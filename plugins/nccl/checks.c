/* What NCCL can't do, or would do wrongly, is refused before the ranks agree on the call. */
#include "plugin.h"

bool nccl_is_message(tt_op op) { return op == TT_OP_SEND || op == TT_OP_RECV; }

static tt_status check_device(const nccl_engine *e, const tt_call *call) {
    if (call->device_index == e->device)
        return TT_OK;
    return nccl_host->fail(TT_ERR_INVALID,
                           "nccl: %s: the call says cuda:%d, and the group is on cuda:%d, as tt_init_process_group() "
                           "was told by .device_index",
                           nccl_host->op_name(call->op), call->device_index, e->device);
}

/* NCCL allows a result within the input where it is this rank's part, nowhere else. */
static tt_status check_overlap(const nccl_engine *e, const tt_call *call) {
    size_t part = (size_t)call->count * nccl_host->dtype_size(call->dtype);
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (call->op != TT_OP_REDUCE_SCATTER || recv + part <= send || recv >= send + part * (size_t)e->size ||
        recv == send + part * (size_t)e->rank)
        return TT_OK;
    return nccl_host->fail(TT_ERR_UNSUPPORTED,
                           "nccl: reduce_scatter: recv overlaps send; it may only be part %d of send, this rank's own",
                           e->rank);
}

/* Refuse messages that NCCL lacks, before they are marked. */
static tt_status check_message(const nccl_engine *e, const tt_call *call) {
    if (!nccl_is_message(call->op))
        return TT_OK;
    if (call->root == TT_ANY_SOURCE)
        return nccl_host->fail(TT_ERR_UNSUPPORTED, "nccl: recv: NCCL receives from no \"any source\": name the rank");
    if (call->root == e->rank)
        return nccl_host->fail(TT_ERR_UNSUPPORTED, "nccl: %s: a rank sends nothing to itself: copy instead",
                               nccl_host->op_name(call->op));
    return TT_OK;
}

/* Does this rank's part of the call read `send`, or write `recv`? */
static bool sends(const nccl_engine *e, const tt_call *call) {
    return call->op != TT_OP_BROADCAST && call->op != TT_OP_RECV &&
           (call->op != TT_OP_SCATTER || call->root == e->rank);
}

static bool receives(const nccl_engine *e, const tt_call *call) {
    bool only_root = call->op == TT_OP_REDUCE || call->op == TT_OP_GATHER;
    return call->op != TT_OP_SEND && (!only_root || call->root == e->rank);
}

/* A GPU that is given another one's address, or the host's, stops with an error that no call survives. */
static tt_status check_memory(const nccl_engine *e, const tt_call *call, const char *name, const void *memory) {
    unsigned type = 0;
    int device = -1;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
    const char *op = nccl_host->op_name(call->op);
    if (!memory)
        return TT_OK;
    if (cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE)
        return nccl_host->fail(TT_ERR_INVALID,
                               "nccl: %s: `%s` is memory of the host; expected memory of cuda:%d, as of a tensor that "
                               "tt_to_device() made",
                               op, name, e->device);
    if (cuda.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) == CUDA_SUCCESS &&
        device != e->device)
        return nccl_host->fail(TT_ERR_INVALID, "nccl: %s: `%s` lies on cuda:%d, and the group is on cuda:%d", op, name,
                               device, e->device);
    return TT_OK;
}

tt_status nccl_check_call(const nccl_engine *e, const tt_call *call) {
    bool is_uneven = call->op == TT_OP_ALL_GATHER_V || call->op == TT_OP_ALL_TO_ALL_V;
    tt_status status = check_device(e, call);
    if (!status)
        status = check_overlap(e, call);
    if (!status)
        status = check_message(e, call);
    if (call->op == TT_OP_BARRIER || (!call->count && !is_uneven))
        return status;
    if (!status && sends(e, call))
        status = check_memory(e, call, "send", call->send);
    if (!status && receives(e, call))
        status = check_memory(e, call, "recv", call->recv);
    return status;
}
