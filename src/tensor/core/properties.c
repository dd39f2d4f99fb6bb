/* Properties of a tensor. */
#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/device/pinned.h"

tt_dtype tt_tensor_dtype(const tt_tensor *x) { return x ? x->dtype : TT_F32; }

const tt_device *tt_tensor_device(const tt_tensor *x) { return x ? tt__device_of(x) : NULL; }

int tt_tensor_dim(const tt_tensor *x) { return x ? x->shape.ndim : 0; }

int64_t tt_tensor_size(const tt_tensor *x, int d) {
    int i = x ? tt__dim_index(x->shape.ndim, d) : -1;
    return i < 0 ? 0 : x->shape.dim[i];
}

int64_t tt_tensor_stride(const tt_tensor *x, int d) {
    int i = x ? tt__dim_index(x->shape.ndim, d) : -1;
    return i < 0 ? 0 : x->stride[i];
}

int64_t tt_tensor_numel(const tt_tensor *x) { return x ? x->numel : 0; }

tt_shape tt_tensor_shape(const tt_tensor *x) { return x ? x->shape : (tt_shape){.ndim = 0}; }

bool tt_is_contiguous(const tt_tensor *x) { return x && x->contiguous; }

static void *host_data(const char *who, const tt_tensor *x) {
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    if (!tt__device_is_host(tt__device_of(x)))
        return tt__fail_null(
            TT_ERR_UNSUPPORTED,
            "%s: %s lies on the device \"%s\", which pointers don't reach; tt_to_device() brings it here", who,
            TT__DESCRIBE(x), tt__device_of(x)->name);
    if (x->storage->pinned && tt__pinned_wait(x->storage->pinned)) /* the caller may write there */
        return NULL;
    return x->data;
}

void *tt_tensor_data(const tt_tensor *x) { return host_data("tt_tensor_data", x); }

float *tt_tensor_f32(const tt_tensor *x) {
    if (x && x->dtype != TT_F32)
        return tt__fail_null(TT_ERR_DTYPE, "tt_tensor_f32: expected f32, got %s", TT__DESCRIBE(x));
    return host_data("tt_tensor_f32", x);
}

int64_t *tt_tensor_i64(const tt_tensor *x) {
    if (x && x->dtype != TT_I64)
        return tt__fail_null(TT_ERR_DTYPE, "tt_tensor_i64: expected i64, got %s", TT__DESCRIBE(x));
    return host_data("tt_tensor_i64", x);
}
