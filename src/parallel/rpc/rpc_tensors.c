/* Tensors as values: describe those that are sent, and make those that arrive. */
#include "base/error.h"
#include "parallel/rpc/dist.h"
#include "parallel/rpc/training_functions.h"
#include "rpc/values/landing_memory.h"
#include "tensor/device/device.h"
#include "tensor/ops/ops.h"

#include <string.h>

static const char values_name[] = "a tensor of a call";

/* ---- leaving */

/* Return x as a contiguous tensor of the host without history: a share of it or of a copy, which is the caller's. */
static tt_tensor *plain_share(tt_tensor *x) {
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    tt_tensor *plain = x;
    if (!tt_is_contiguous(x) || !tt__device_is_host(tt_tensor_device(x)))
        plain = tt_contiguous(tt_to_device(x, TT_CPU));
    tt_tensor *kept = plain ? tt__tensor_detached(values_name, plain) : NULL;
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    return kept;
}

static const void *form_of_tensor(tt_tensor *x, tt__rpc_form *form, size_t *bytes, void **keep) {
    *keep = NULL;
    if (!x || !tt__tensor_check(values_name, x))
        return x ? NULL : tt__fail_null(TT_ERR_INVALID, "%s is NULL", values_name);
    tt_tensor *plain = plain_share(x);
    if (!plain)
        return NULL;
    const tt_device *device = tt__device_of(x);
    *form = (tt__rpc_form){.dtype = (uint8_t)x->dtype,
                           .ndim = (uint8_t)x->shape.ndim,
                           .device = (uint8_t)device->type,
                           .device_index = (uint8_t)device->index,
                           .requires_grad = x->requires_grad};
    for (int d = 0; d < x->shape.ndim; d++)
        form->shape[d] = x->shape.dim[d];
    *bytes = (size_t)x->numel * tt_dtype_size(x->dtype);
    *keep = plain;
    return plain->data ? plain->data : plain; /* a tensor without elements: any address */
}

static void release_tensor(void *keep) { tt__tensor_unref(keep); }

/* ---- arriving */

/* Check a form that another process has sent. */
static tt_status read_form(const tt__rpc_form *form, size_t bytes, tt_shape *shape) {
    if (form->dtype > TT_BOOL || form->ndim > TT_MAX_DIMS)
        return tt__fail(TT_ERR_MISMATCH, "%s: expected an element type and at most %d dimensions, got number %d and %d",
                        values_name, TT_MAX_DIMS, form->dtype, form->ndim);
    size_t size = tt_dtype_size((tt_dtype)form->dtype);
    *shape = (tt_shape){.ndim = form->ndim};
    bool fits = size > 0;
    for (int d = 0; d < form->ndim && fits; d++) {
        shape->dim[d] = form->shape[d];
        fits = form->shape[d] >= 0 && !__builtin_mul_overflow(size, (size_t)form->shape[d], &size);
    }
    if (fits && size == bytes)
        return TT_OK;
    return tt__fail(TT_ERR_MISMATCH, "%s: its %d dimensions don't have the %zu bytes that came", values_name,
                    form->ndim, bytes);
}

static tt_tensor *tensor_of_form(const tt__rpc_form *form, size_t bytes, void **data) {
    tt_shape shape;
    if (read_form(form, bytes, &shape))
        return NULL;
    int scope = tt_scope_begin();
    void *room = bytes < TT__LANDING_LARGE ? NULL : tt__landing_take(bytes);
    tt_tensor *x = room ? tt__tensor_take(values_name, room, tt__landing_give, shape, (tt_dtype)form->dtype)
                        : tt__tensor_new(values_name, shape, (tt_dtype)form->dtype);
    tt_status status = x ? tt__tensor_lend(x, "a value of a call; tt_keep() takes it") : tt_last_status();
    tt_scope_end(scope);
    if (status)
        return NULL;
    *data = x->data;
    return x;
}

/* Move a tensor to a device like the sender's, if there is one here. */
static tt_status bring_to_device(tt_tensor *x, const tt__rpc_form *form) {
    tt_device_type type = (tt_device_type)form->device;
    if (type != TT_DEVICE_CUDA || tt_device_count(type) < 1)
        return TT_OK;
    const tt_device *device = tt_device_of(type, form->device_index < tt_device_count(type) ? form->device_index : 0);
    if (!device)
        return tt_last_status();
    int scope = tt_scope_begin();
    tt_tensor *there = tt__to_device(values_name, x, device);
    if (there)
        tt__tensor_swap(x, there);
    tt_scope_end(scope);
    return there ? TT_OK : tt_last_status();
}

static tt_status tensor_is_made(tt_tensor *x, const tt__rpc_form *form) {
    TT__TRY(bring_to_device(x, form));
    if (!form->requires_grad)
        return TT_OK;
    return tt_requires_grad_(x, true) ? TT_OK : tt_last_status();
}

static tt_tensor *share_tensor(tt_tensor *x) {
    if (x && tt__tensor_check(values_name, x))
        return tt__tensor_ref(x);
    return x ? NULL : tt__fail_null(TT_ERR_INVALID, "%s is NULL", values_name);
}

const tt__rpc_tensor_hooks tt__tensor_hooks = {
    .describe = form_of_tensor,
    .release = release_tensor,
    .make = tensor_of_form,
    .made = tensor_is_made,
    .share = share_tensor,
    .free = tt__tensor_unref,
    .current = tt__dist_current,
    .enter = tt__dist_enter,
    .leave = tt__dist_leave,
    .sending = tt__dist_sending,
    .received = tt__dist_received,
};

/* Return a view of a tensor that requires a gradient: the context has recorded the tensor itself as a leaf. */
tt_tensor *tt__take_tensor(tt_rpc_value *value) {
    tt_tensor *x = tt__value_tensor(value);
    if (!x)
        return tt__tensor_fail(TT_ERR_INVALID, "tt_rpc_take_tensor: expected a tensor, got %s",
                               value ? tt_rpc_kind_name(value->kind) : "NULL");
    tt_tensor *taken =
        x->requires_grad ? tt_view(x, x->shape) : tt__tensor_alias("tt_rpc_take_tensor", x, x->shape, x->stride, 0);
    tt_rpc_value_free(value);
    return taken;
}
