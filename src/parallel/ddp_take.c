/* Tensors that all ranks take from one. */
#include "base/error.h"
#include "parallel/ddp_state.h"

tt_status tt__ddp_take(tt_group *group, const tt_named_tensors *list, int root) {
    for (int64_t i = 0; i < list->count; i++)
        if (tt_tensor_broadcast_with(TT_ARGS(tt_tensor_broadcast_args, .group = group, .x = list->tensors[i],
                                             .root = root, .file = DDP_SITE)))
            return tt__fail_prefix("\"%s\"", list->names[i]);
    return TT_OK;
}
