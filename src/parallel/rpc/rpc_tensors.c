/* Tensors as values of calls: describe those that are sent, make those that arrive, and record both in the context of
 * distributed autograd that the call runs in. */
#include "autograd/record.h"
#include "base/error.h"
#include "parallel/rpc/dist.h"
#include "rpc/values/landing_memory.h"
#include "tensor/device/device.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- functions that run in a context, and in none ---- */

/* A function that runs in this thread. */
typedef struct frame {
    struct frame *outer;
    tt__dist_context *context; /* a reference, or NULL */
    tt_scope *scope;           /* of the function, in a context; or NULL */
    int block;                 /* without a context: the thread's scope of the function */
} frame;

static _Thread_local frame *frames;
static _Thread_local int unframed; /* functions that run without a frame, for lack of memory */

static void dist_enter(tt_rpc *rpc, uint64_t context) {
    frame *f = unframed ? NULL : calloc(1, sizeof *f);
    tt__dist *dist = context && f ? tt__dist_of(rpc) : NULL;
    tt__dist_reenter(context);
    if (!f) {
        unframed++;
        return;
    }
    f->outer = frames;
    frames = f;
    f->context = dist ? tt__dist_meet(dist, context) : NULL;
    f->scope = f->context ? tt_scope_new() : NULL;
    if (f->scope && tt_scope_enter(f->scope)) {
        tt_scope_free(f->scope);
        f->scope = NULL;
    }
    if (!f->scope)
        f->block = tt_scope_begin();
}

/* Let the context keep the tensors that a function has made, unless the context has ended. */
static void keep_scope(tt__dist_context *context, tt_scope *scope) {
    pthread_mutex_lock(&context->lock);
    bool kept = !context->ended &&
                tt__dist_room(&context->scopes, context->scope_count, &context->scope_room, sizeof(tt_scope *));
    if (kept)
        context->scopes[context->scope_count++] = scope;
    pthread_mutex_unlock(&context->lock);
    if (!kept)
        tt_scope_free(scope);
}

static void dist_leave(uint64_t before) {
    tt__dist_reenter(before);
    if (unframed) {
        unframed--;
        return;
    }
    frame *f = frames;
    if (!f)
        return;
    frames = f->outer;
    if (f->scope) {
        tt_ignore(tt_scope_leave(f->scope));
        keep_scope(f->context, f->scope);
    } else {
        tt_scope_end(f->block);
    }
    tt__dist_unref(f->context);
    free(f);
}

/* ---- tensors that are sent ---- */

/* Give the gradients that came back to the tensors that were sent. */
static tt_status sent_backward(tt_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (tt__grad_of(node, i))
            TT__TRY(tt__grad_give(node, i, tt__grad_of(node, i)));
    return TT_OK;
}

static const tt__operator sent_op = {.name = "a tensor sent to another worker", .backward = sent_backward};

tt_node *tt__dist_node(tt_tensor *const *tensors, int64_t count) {
    tt_node *node = tt__node_new(&sent_op, (int)count, tensors, (int)count, 0, NULL, 0);
    if (node)
        tt__scope_remove(&node->entry, TT__ENTRY_RECORD); /* it belongs to the context */
    return node;
}

static tt_status note_send(tt__dist_context *context, int to, tt_node *node, uint64_t *number) {
    pthread_mutex_lock(&context->lock);
    bool room = tt__dist_room(&context->sends, context->send_count, &context->send_room, sizeof *context->sends);
    if (room) {
        *number = atomic_fetch_add(&context->dist->last_message, 1) + 1;
        context->sends[context->send_count++] = (tt__dist_send){*number, to, node};
        tt__node_ref(node);
    }
    pthread_mutex_unlock(&context->lock);
    return room ? TT_OK : TT_ERR_MEMORY;
}

static tt_status dist_sending(tt_rpc *rpc, int to, tt__rpc_context *context, tt_tensor *const *tensors, int64_t count) {
    context->message = 0;
    if (count > INT32_MAX / 2 || !tt__wants_grad((int)count, tensors))
        return TT_OK;
    tt__dist *dist = tt__dist_of(rpc);
    if (!dist)
        return tt_last_status();
    tt__dist_context *of = tt__dist_meet(dist, context->context);
    if (!of) /* the context has ended, so no pass will ask */
        return TT_OK;
    tt_node *node = tt__dist_node(tensors, count);
    tt_status status = node ? note_send(of, to, node, &context->message) : tt_last_status();
    tt__node_unref(node);
    tt__dist_unref(of);
    return status;
}

const tt__dist_send *tt__dist_find_send(const tt__dist_context *context, uint64_t number) {
    int64_t low = 0, high = context->send_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (context->sends[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < context->send_count && context->sends[low].number == number ? &context->sends[low] : NULL;
}

/* ---- tensors that arrive ---- */

static tt_status fill_receipt(tt__dist_context *context, tt__dist_receipt *receipt, tt_tensor *const *tensors) {
    for (int64_t i = 0; i < receipt->count; i++) {
        if (!tensors[i] || !tensors[i]->requires_grad)
            continue;
        if (!tt__pointer_map_put(&context->receipt_at, tensors[i], context->receipt_count))
            return tt__fail(TT_ERR_MEMORY, "no memory for a message in a context of distributed autograd");
        receipt->leaves[i] = tt__tensor_ref(tensors[i]);
    }
    return TT_OK;
}

/* Record a receipt. After a failure the map may have leaves without a receipt; the call of this message then fails. */
static tt_status note_receipt(tt__dist_context *context, tt__dist_receipt *receipt, tt_tensor *const *tensors) {
    if (!tt__dist_room(&context->receipts, context->receipt_count, &context->receipt_room, sizeof *receipt))
        return TT_ERR_MEMORY;
    receipt->leaves = calloc((size_t)receipt->count + 1, sizeof *receipt->leaves);
    if (!receipt->leaves)
        return tt__fail(TT_ERR_MEMORY, "no memory for a message of %lld tensors", (long long)receipt->count);
    tt_status status = fill_receipt(context, receipt, tensors);
    context->receipts[context->receipt_count++] = *receipt;
    return status;
}

static tt_status dist_received(tt_rpc *rpc, int from, const tt__rpc_context *context, tt_tensor **tensors,
                               int64_t count) {
    tt__dist *dist = tt__dist_of(rpc);
    if (!dist)
        return tt_last_status();
    tt__dist_context *of = tt__dist_meet(dist, context->context);
    if (!of)
        return TT_OK;
    tt__dist_receipt receipt = {.number = context->message, .from = from, .count = count};
    pthread_mutex_lock(&of->lock);
    tt_status status = note_receipt(of, &receipt, tensors);
    pthread_mutex_unlock(&of->lock);
    tt__dist_unref(of);
    return status;
}

static const char values_name[] = "a tensor of a call";

/* ---- leaving ---- */

/* Return x, or a copy, as a contiguous tensor of the host without history; a reference for the caller. */
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

/* ---- arriving ---- */

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
    .enter = dist_enter,
    .leave = dist_leave,
    .sending = dist_sending,
    .received = dist_received,
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
