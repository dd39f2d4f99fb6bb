#include "tensor/shape/host_copy.h"

#include "base/error.h"
#include "tensor/device/device.h"

tt_status tt__host_copy_make(tt__host_copy *elements, const tt_tensor *x) {
    bool in_place = tt_is_contiguous(x) && tt__device_is_host(tt_tensor_device(x));
    tt_tensor *copy = in_place ? NULL : tt_keep(tt_empty(tt_tensor_shape(x), tt_tensor_dtype(x)));
    if (!in_place && !copy)
        return tt_last_status();
    tt_status status = copy ? tt_copy(copy, x) : TT_OK;
    if (status) {
        tt_tensor_free(copy);
        return status;
    }
    *elements = (tt__host_copy){.data = tt_tensor_data(copy ? copy : x),
                                .size = (uint64_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x)),
                                .copy = copy};
    return TT_OK;
}

void tt__host_copy_free(tt__host_copy *elements) {
    tt_tensor_free(elements->copy);
    *elements = (tt__host_copy){0};
}
