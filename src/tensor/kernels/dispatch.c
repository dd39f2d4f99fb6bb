/* Finding the kernel of a call. */
#include "tensor/kernels/kernels.h"

tt__any_kernel tt__kernel_find(const char *who, const tt_tensor *x, size_t offset, const char *name) {
    const tt_device *device = tt__device_of(x);
    tt__any_kernel found = tt__kernel_of(device, x->dtype, offset);
    if (!found)
        tt__tensor_fail(TT_ERR_UNSUPPORTED, "%s: the device \"%s\" has no kernel \"%s\" for %s", who, device->name,
                        name, tt_dtype_name(x->dtype));
    return found;
}
