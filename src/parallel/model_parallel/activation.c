#include "parallel/model_parallel/activation.h"

#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

tt_status tt__stage_link_check(const char *who, const tt__stage_link *link, int tag) {
    int ranks = tt_get_world_size(link->group);
    if (!link->group)
        return tt__fail(TT_ERR_INVALID, "%s: `group` is NULL", who);
    if (link->peer < 0 || link->peer >= ranks || link->peer == tt_get_rank(link->group))
        return tt__fail(TT_ERR_INVALID, "%s: expected another rank of the %d, got %d on rank %d", who, ranks,
                        link->peer, tt_get_rank(link->group));
    if (tag < 0 || tag >= TT__GRADIENT_TAGS)
        return tt__fail(TT_ERR_INVALID, "%s: expected a tag from 0 to %lld, got %d", who,
                        (long long)TT__GRADIENT_TAGS - 1, tag);
    return TT_OK;
}

int tt__stage_peer(const tt__stage_link *link) { return tt_get_global_rank(link->group, link->peer); }

tt_status tt__stage_send(const tt__stage_link *link, const void *data, int64_t count, tt_dtype dtype, int tag,
                         tt_work **work) {
    tt_send_args args = {.group = link->group,
                         .buf = data,
                         .count = count,
                         .dtype = dtype,
                         .peer = link->peer,
                         .tag = tag,
                         .work = work,
                         .timeout_ms = link->timeout_ms,
                         .file = link->file,
                         .line = link->line};
    return tt_send_with(&args, offsetof(tt_send_args, tt_end));
}

tt_status tt__stage_recv(const tt__stage_link *link, void *data, int64_t count, tt_dtype dtype, int tag,
                         tt_work **work) {
    tt_recv_args args = {.group = link->group,
                         .buf = data,
                         .count = count,
                         .dtype = dtype,
                         .peer = link->peer,
                         .tag = tag,
                         .work = work,
                         .timeout_ms = link->timeout_ms,
                         .file = link->file,
                         .line = link->line};
    return tt_recv_with(&args, offsetof(tt_recv_args, tt_end));
}

tt_status tt__stage_finish(tt_work **work) {
    tt_status status = *work ? tt_work_wait(*work) : TT_OK;
    tt_work_free(*work);
    *work = NULL;
    return status;
}

tt_tensor *tt__activation_plain(const char *who, tt_tensor *x) {
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    tt_tensor *plain = x;
    if (!tt_is_contiguous(x) || !tt__device_is_host(tt_tensor_device(x)))
        plain = tt_contiguous(tt_to_device(x, tt_device_get("cpu")));
    tt_tensor *kept = plain ? tt__tensor_detached(who, plain) : NULL;
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    return kept;
}
