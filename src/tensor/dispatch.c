#include "tensor/kernels.h"

static tt__any_kernel kernel_at(const tt__kernels *table, size_t offset) {
    return table ? *(const tt__any_kernel *)(const void *)((const char *)table + offset) : NULL;
}

/* Find the kernel. A fallback serves where it reaches the same memory, that is by plain pointers. */
tt__any_kernel tt__kernel_find(const char *who, const tt_tensor *x, size_t offset, const char *name) {
    for (const tt_device *d = tt__device_of(x); d; d = tt__device_is_host(d) ? d->fallback : NULL) {
        tt__any_kernel found = kernel_at(d->kernels[x->dtype], offset);
        if (found)
            return found;
    }
    tt__tensor_fail(TT_ERR_UNSUPPORTED, "%s: the device \"%s\" has no kernel \"%s\" for %s", who,
                    tt__device_of(x)->name, name, tt_dtype_name(x->dtype));
    return NULL;
}
