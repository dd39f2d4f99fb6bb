/* Copies between layouts, element types and devices. */
#include "tensor/shape/copy.h"

#include "base/error.h"
#include "tensor/core/element.h"
#include "tensor/device/capture.h"
#include "tensor/device/device.h"
#include "tensor/device/pinned.h"
#include "tensor/ops/ops.h"

#include <string.h>

/* ---- bytes from and to the host ---- */

static size_t tensor_bytes(const tt_tensor *x) { return (size_t)x->numel * tt_dtype_size(x->dtype); }

/* Copy the bytes of a contiguous tensor, whatever its device, to the host. */
static tt_status read_bytes(const tt_tensor *x, void *host) {
    const tt_device *device = tt__device_of(x);
    if (x->numel == 0)
        return TT_OK;
    if (!tt__device_is_host(device))
        return device->to_host(device, host, x->data, tensor_bytes(x));
    memcpy(host, x->data, tensor_bytes(x));
    return TT_OK;
}

/* Copy them from the host. */
static tt_status write_bytes(tt_tensor *x, const void *host) {
    const tt_device *device = tt__device_of(x);
    if (x->numel == 0)
        return TT_OK;
    if (!tt__device_is_host(device))
        return device->from_host(device, x->data, host, tensor_bytes(x));
    memcpy(x->data, host, tensor_bytes(x));
    return TT_OK;
}

/* Copy the elements of x, contiguous and on the host, to y, contiguous and of its type. From pinned memory the copy
 * runs beside the host. */
static tt_status write_from_host(tt_tensor *y, const tt_tensor *x) {
    tt__pinned *pinned = x->storage->pinned;
    if (x->numel && pinned && tt__pinned_device(pinned) == tt__device_of(y))
        return tt__pinned_copy(pinned, y->data, x->data, tensor_bytes(x));
    return write_bytes(y, x->data);
}

/* ---- contiguous stand-ins ---- */

tt_tensor *tt__contiguous_begin(const char *who, const tt_tensor *x) {
    return x->contiguous ? (tt_tensor *)x : tt__clone_contiguous(who, x);
}

void tt__contiguous_done(tt_tensor *copy, const tt_tensor *x) {
    if (copy != x)
        tt__abandon(copy);
}

/* ---- y := x ---- */

/* Copy between tensors that one device's kernels can reach. */
static tt_status copy_here(const char *who, tt_tensor *y, const tt_tensor *x) {
    if (x->dtype == y->dtype) {
        tt__kernel_copy run = TT__KERNEL(who, y, copy);
        return run ? run(y, x) : tt_last_status();
    }
    tt__kernel_convert run = TT__KERNEL(who, y, convert);
    return run ? run(y, x) : tt_last_status();
}

/* Can x's elements be copied to y as bytes? */
static bool lies_like(const tt_tensor *x, const tt_tensor *y) {
    return x->contiguous && y->contiguous && x->dtype == y->dtype;
}

/* Copy from a device to y, on the host. */
static tt_status copy_from_device(const char *who, tt_tensor *y, const tt_tensor *x) {
    tt_tensor *there = tt__contiguous_begin(who, x);
    tt_tensor *here = !there || lies_like(there, y) ? y : tt__tensor_new(who, x->shape, x->dtype);
    tt_status status = here && there ? read_bytes(there, here->data) : tt_last_status();
    if (!status && here != y)
        status = copy_here(who, y, here);
    tt__contiguous_done(here, y);
    tt__contiguous_done(there, x);
    return status;
}

/* Copy from the host to y, on a device. */
static tt_status copy_to_device(const char *who, tt_tensor *y, const tt_tensor *x) {
    bool as_it_is = x->contiguous && x->dtype == y->dtype;
    tt_tensor *here = as_it_is ? (tt_tensor *)x : tt__tensor_new(who, y->shape, y->dtype);
    tt_tensor *there = !here || y->contiguous ? y : tt__empty_beside(who, y, y->shape, y->dtype);
    tt_status status = !here || !there ? tt_last_status() : here == x ? TT_OK : copy_here(who, here, x);
    if (!status)
        status = write_from_host(there, here);
    if (!status && there != y)
        status = copy_here(who, y, there);
    tt__contiguous_done(there, y);
    tt__contiguous_done(here, x);
    return status;
}

static tt_status copy_between_devices(const char *who, tt_tensor *y, const tt_tensor *x) {
    tt_tensor *here = tt__tensor_new(who, x->shape, x->dtype);
    tt_status status = here ? copy_from_device(who, here, x) : tt_last_status();
    if (!status)
        status = copy_to_device(who, y, here);
    tt__abandon(here);
    return status;
}

tt_status tt__copy_out(const char *who, tt_tensor *y, const tt_tensor *x) {
    bool from_host = tt__device_is_host(tt__device_of(x)), to_host = tt__device_is_host(tt__device_of(y));
    if (tt__device_of(x) == tt__device_of(y) || (from_host && to_host))
        return copy_here(who, y, x);
    TT__TRY(tt__capture_refuse(who, NULL));
    return to_host     ? copy_from_device(who, y, x)
           : from_host ? copy_to_device(who, y, x)
                       : copy_between_devices(who, y, x);
}

tt_status tt__tensor_move(const char *who, tt_tensor *x, void *data) {
    const tt_tensor before = *x;
    tt__storage_ref(before.storage); /* until the values are moved */
    tt_status status = tt__tensor_set_data(x, data);
    if (!status)
        status = tt__copy_out(who, x, &before);
    if (!status || x->storage == before.storage) {
        tt__storage_unref(before.storage);
        return status;
    }
    tt__storage_unref(x->storage);
    x->storage = before.storage;
    x->data = before.data;
    return status;
}

/* ---- new tensors ---- */

/* Make a tensor of another dtype or on another device, in x's layout. */
static tt_tensor *empty_as(const char *who, const tt_tensor *x, const tt_device *device, tt_dtype dtype) {
    int64_t stride[TT_MAX_DIMS];
    if (!x->contiguous)
        tt__shape_dense_strides(&x->shape, x->stride, stride);
    return tt__tensor_new_on(who, device, x->shape, dtype, x->contiguous ? NULL : stride);
}

tt_tensor *tt__empty_like(const char *who, const tt_tensor *x) { return empty_as(who, x, tt__device_of(x), x->dtype); }

tt_tensor *tt__empty_beside(const char *who, const tt_tensor *x, tt_shape shape, tt_dtype dtype) {
    return tt__tensor_new_on(who, tt__device_of(x), shape, dtype, NULL);
}

static tt_tensor *filled_from(const char *who, tt_tensor *y, const tt_tensor *x) {
    return y && tt__copy_out(who, y, x) ? tt__abandon(y) : y;
}

tt_tensor *tt__clone(const char *who, const tt_tensor *x) { return filled_from(who, tt__empty_like(who, x), x); }

tt_tensor *tt__clone_contiguous(const char *who, const tt_tensor *x) {
    return filled_from(who, tt__empty_beside(who, x, x->shape, x->dtype), x);
}

tt_tensor *tt__to(const char *who, const tt_tensor *x, tt_dtype dtype) {
    return filled_from(who, empty_as(who, x, tt__device_of(x), dtype), x);
}

tt_tensor *tt__to_device(const char *who, const tt_tensor *x, const tt_device *device) {
    return filled_from(who, empty_as(who, x, device, x->dtype), x);
}

/* ---- one element ---- */

tt_status tt_item(const tt_tensor *x, double *value) {
    if (!x)
        return tt__tensor_first_error("tt_item");
    if (!tt__tensor_check("tt_item", x))
        return TT_ERR_STATE;
    if (!value)
        return tt__fail(TT_ERR_INVALID, "tt_item: `value` is NULL");
    if (x->numel != 1)
        return tt__fail(TT_ERR_SHAPE, "tt_item: expected one element, got %s", TT__DESCRIBE(x));
    TT__TRY(tt__capture_refuse("tt_item", tt__device_of(x)));
    _Alignas(8) char element[8];
    TT__TRY(read_bytes(x, element));
    *value = tt__load_f64(x->dtype, element);
    return TT_OK;
}

/* ---- tt_copy ---- */

static bool same_elements(const tt_tensor *a, const tt_tensor *b) {
    return a->data == b->data && !memcmp(a->stride, b->stride, (size_t)a->shape.ndim * sizeof *a->stride);
}

/* Copy between overlapping tensors, by way of a copy. */
static tt_status copy_within(tt_tensor *dst, const tt_tensor *src) {
    if (same_elements(dst, src))
        return TT_OK;
    tt_tensor *before = tt__clone("tt_copy", src);
    tt_status status = before ? tt__copy_out("tt_copy", dst, before) : tt_last_status();
    tt__abandon(before);
    return status;
}

tt_status tt_copy(tt_tensor *dst, const tt_tensor *src) {
    if (!dst || !src)
        return tt__tensor_first_error("tt_copy");
    if (!tt__tensor_check("tt_copy", dst) || !tt__tensor_check("tt_copy", src))
        return TT_ERR_STATE;
    if (dst->dtype != src->dtype)
        return tt__fail(TT_ERR_DTYPE, "tt_copy: expected one dtype, got dst %s, src %s", TT__DESCRIBE(dst),
                        TT__DESCRIBE(src));
    if (!tt__shape_equal(&dst->shape, &src->shape))
        return tt__fail(TT_ERR_SHAPE, "tt_copy: expected one shape, got dst %s, src %s", TT__DESCRIBE(dst),
                        TT__DESCRIBE(src));
    TT__TRY(tt__tensor_check_writable("tt_copy", dst));
    tt__storage_touch(dst->storage);
    return dst->storage == src->storage ? copy_within(dst, src) : tt__copy_out("tt_copy", dst, src);
}

tt_status tt__host_copy_make(tt__host_copy *elements, const tt_tensor *x) {
    bool in_place = tt_is_contiguous(x) && tt__device_is_host(tt_tensor_device(x));
    tt_tensor *copy = in_place ? NULL : tt_keep(tt__tensor_new("tt_empty", tt_tensor_shape(x), tt_tensor_dtype(x)));
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

tt_status tt__hash_values(uint64_t *hash, const tt_tensor *x) {
    tt__host_copy elements = {0};
    TT__TRY(tt__host_copy_make(&elements, x));
    const char *bytes = elements.data;
    for (size_t i = 0; i < elements.size; i += sizeof(uint32_t)) {
        const size_t left = elements.size - i;
        uint32_t word = 0;
        memcpy(&word, bytes + i, left < sizeof word ? left : sizeof word);
        *hash = tt__fnv_number(*hash, word);
    }
    tt__host_copy_free(&elements);
    return TT_OK;
}
