/* Tensors that all ranks take from one. */
#include "base/error.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"
#include "tensor/device/device.h"

tt_status tt__ddp_take_one(tt_group *group, const char *name, tt_tensor *x, int root) {
    if (!tt_tensor_broadcast_with(
            TT_ARGS(tt_tensor_broadcast_args, .group = group, .x = x, .root = root, .file = DDP_SITE)))
        return TT_OK;
    tt_status status = tt__fail_prefix("\"%s\"", name);
    if (!tt__device_is_host(tt_tensor_device(x)))
        tt__abort_with_error(group); /* a device may fail on this rank alone */
    return status;
}

tt_status tt__ddp_take(tt_group *group, const tt_named_tensors *list, int root) {
    for (int64_t i = 0; i < list->count; i++)
        TT__TRY(tt__ddp_take_one(group, list->names[i], list->tensors[i], root));
    return TT_OK;
}
