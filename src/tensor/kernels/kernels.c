/* The tables of the plain loops, and finding the kernel of a call. */
#include "tensor/kernels/kernels.h"

const tt__kernels *const tt__reference_kernels[TT__DTYPES] = {
    [TT_F32] = &tt__reference_f32,   [TT_F64] = &tt__reference_f64, [TT_F16] = &tt__reference_f16,
    [TT_BF16] = &tt__reference_bf16, [TT_I8] = &tt__reference_i8,   [TT_I16] = &tt__reference_i16,
    [TT_I32] = &tt__reference_i32,   [TT_I64] = &tt__reference_i64, [TT_U8] = &tt__reference_u8,
    [TT_BOOL] = &tt__reference_bool,
};

/* The host with plain loops only: finite differences and parity tests run on it. */
const tt_device tt__reference_device = {.name = "reference", .kernels = tt__reference_kernels};

static tt__any_kernel kernel_at(const tt__kernels *table, size_t offset) {
    return table ? *(const tt__any_kernel *)(const void *)((const char *)table + offset) : NULL;
}

/* A fallback serves only memory that plain pointers reach. */
static tt__any_kernel kernel_of(const tt_device *device, tt_dtype dtype, size_t offset) {
    for (const tt_device *d = device; d; d = tt__device_is_host(d) ? d->fallback : NULL) {
        tt__any_kernel found = kernel_at(d->kernels[dtype], offset);
        if (found)
            return found;
    }
    return NULL;
}

tt__any_kernel tt__kernel_find(const char *who, const tt_tensor *x, size_t offset, const char *name) {
    const tt_device *device = tt__device_of(x);
    tt__any_kernel found = kernel_of(device, x->dtype, offset);
    if (!found)
        tt__tensor_fail(TT_ERR_UNSUPPORTED, "%s: the device \"%s\" has no kernel \"%s\" for %s", who, device->name,
                        name, tt_dtype_name(x->dtype));
    return found;
}
