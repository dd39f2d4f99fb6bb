/* Tensors: making, owning and freeing them. */
#include "tensor/core/tensor.h"

#include "base/error.h"
#include "base/log.h"
#include "base/quarantine.h"
#include "tensor/core/pool.h"
#include "tensor/device/pinned.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- tensors that only tt_tensor_free() frees ----
 *
 * A loop without a scope piles them up: the log warns once. Tensors that are kept, held (parameters, buffers, state,
 * data) or leaves are not counted. */

/* A program has some dozens of tensors of its own beside what models, optimizers and data sets hold. Many more, or more
 * memory, come from a loop that frees none. A few large ones are data that no data set holds yet. */
enum { MANY = 5000, SOME = 16 };
static const int64_t many_bytes = (int64_t)1 << 30;

static _Atomic int64_t alive, held_bytes;

/* Count a tensor that was made with no scope open, and the bytes it brought. From any thread. */
static void unscoped_add(size_t bytes) {
    static _Atomic bool warned;
    int64_t count = atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed) + 1;
    int64_t held = atomic_fetch_add_explicit(&held_bytes, (int64_t)bytes, memory_order_relaxed) + (int64_t)bytes;
    if (__builtin_expect(count < MANY && (count < SOME || held < many_bytes), 1) ||
        atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    tt__log(TT_LOG_WARNING,
            "%lld tensors with %lld MiB live outside of scopes, where only tt_tensor_free() frees them: memory grows. "
            "Write TT_AUTO_SCOPE; at the top of the loop's body, or tt_keep() those that are to stay",
            (long long)count, (long long)(held >> 20));
}

static void unscoped_remove(size_t bytes) {
    atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&held_bytes, (int64_t)bytes, memory_order_relaxed);
}

/* ---- making ---- */

/* Make a tensor without storage, after checking its shape and element type. All tensors begin here. */
static tt_tensor *tensor_shell(const char *who, tt_shape shape, tt_dtype dtype) {
    int64_t numel = tt__shape_numel(&shape);
    if (!tt_dtype_size(dtype))
        return tt__tensor_fail(TT_ERR_DTYPE, "%s: expected an element type, got number %d", who, (int)dtype);
    if (shape.ndim < 0 || shape.ndim > TT_MAX_DIMS)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected 0 to %d dimensions, got %d", who, TT_MAX_DIMS, shape.ndim);
    if (numel < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected sizes of at least 0 whose product fits memory, got %s %s",
                               who, tt_dtype_name(dtype), TT__SHAPE_TEXT(&shape));
    tt_tensor *x = tt__pool_alloc(sizeof *x);
    if (!x)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a tensor", who);
    memset(x, 0, sizeof *x);
    x->magic = TT__ALIVE;
    x->dtype = dtype;
    x->shape = shape;
    x->numel = numel;
    x->refs = 1;
    return x;
}

static void tensor_scope_ended(tt__entry *entry) {
    tt_tensor *x = (tt_tensor *)entry;
    x->owner = TT__OWNER_CALLER;
    tt__tensor_unref(x);
}

/* Give x to the open scope, else to the caller. `bytes`: size of its new storage. */
static tt_tensor *give_to_scope(tt_tensor *x, size_t bytes) {
    bool in_scope = tt__scope_add(&x->entry, TT__ENTRY_TENSOR, tensor_scope_ended);
    x->owner = in_scope ? TT__OWNER_SCOPE : TT__OWNER_CALLER;
    x->unscoped = !in_scope;
    x->unscoped_bytes = bytes;
    if (!in_scope)
        unscoped_add(bytes);
    return x;
}

void tt__tensor_means_to_stay(tt_tensor *x) {
    if (x->unscoped)
        unscoped_remove(x->unscoped_bytes);
    x->unscoped = false;
}

static void set_strides(tt_tensor *x, const int64_t *stride) {
    if (stride)
        memcpy(x->stride, stride, (size_t)x->shape.ndim * sizeof *stride);
    else
        tt__shape_strides(&x->shape, x->stride);
    x->contiguous = !stride || x->numel == 0 || tt__shape_is_contiguous(&x->shape, stride);
}

/* Give x, a shell, its storage. `storage` NULL: record an error and free x. */
static tt_tensor *lay_in(const char *who, tt_tensor *x, const tt_device *device, tt__storage *storage, size_t bytes,
                         const int64_t *stride) {
    x->storage = storage;
    if (!storage) {
        if (tt__device_is_host(device))
            tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for %s (%zu bytes on %s)", who, TT__DESCRIBE(x), bytes,
                            device->name);
        else
            tt__fail_prefix(tt_last_status() == TT_ERR_MEMORY ? "%s: no memory for %s" : "%s: %s", who,
                            TT__DESCRIBE(x));
        tt__pool_free(x);
        return NULL;
    }
    x->data = x->storage->data;
    set_strides(x, stride);
    return give_to_scope(x, bytes);
}

static size_t elements_size(const tt_tensor *x) { return (size_t)x->numel * tt_dtype_size(x->dtype); }

tt_tensor *tt__tensor_new_on(const char *who, const tt_device *device, tt_shape shape, tt_dtype dtype,
                             const int64_t *stride) {
    tt_tensor *x = tensor_shell(who, shape, dtype);
    return x ? lay_in(who, x, device, tt__storage_new(device, elements_size(x)), elements_size(x), stride) : NULL;
}

tt_tensor *tt__tensor_new_pinned(const char *who, const tt_device *device, tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tensor_shell(who, shape, dtype);
    return x ? lay_in(who, x, &tt__cpu_device, tt__storage_new_pinned(device, elements_size(x)), elements_size(x), NULL)
             : NULL;
}

tt_tensor *tt__tensor_take(const char *who, void *data, void (*release)(void *data), tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tensor_shell(who, shape, dtype);
    tt__storage *storage = x ? tt__storage_take(data, elements_size(x), release) : NULL;
    if (!storage)
        release(data);
    return x ? lay_in(who, x, &tt__cpu_device, storage, elements_size(x), NULL) : NULL;
}

tt_tensor *tt__tensor_new(const char *who, tt_shape shape, tt_dtype dtype) {
    return tt__tensor_new_on(who, &tt__cpu_device, shape, dtype, NULL);
}

static tt_tensor *alias_of(const char *who, const tt_tensor *x, tt_shape shape, const int64_t *stride, int64_t offset) {
    tt_tensor *y = tensor_shell(who, shape, x->dtype);
    if (!y)
        return NULL;
    y->storage = tt__storage_ref(x->storage);
    y->data = (char *)x->data + offset * (int64_t)tt_dtype_size(x->dtype);
    set_strides(y, stride);
    return y;
}

tt_tensor *tt__tensor_alias(const char *who, const tt_tensor *x, tt_shape shape, const int64_t *stride,
                            int64_t offset) {
    tt_tensor *y = alias_of(who, x, shape, stride, offset);
    if (y)
        atomic_store_explicit(&y->storage->viewed, true, memory_order_relaxed);
    return y ? give_to_scope(y, 0) : NULL;
}

tt_tensor *tt__tensor_detached(const char *who, const tt_tensor *x) {
    tt_tensor *y = alias_of(who, x, x->shape, x->stride, 0);
    if (y) {
        y->owner = TT__OWNER_HOLDER;
        y->holder = "the tape";
    }
    return y;
}

tt_tensor tt__tensor_seen(const tt_tensor *x, tt_shape shape, const int64_t *stride) {
    tt_tensor y = {.magic = TT__ALIVE, .dtype = x->dtype, .data = x->data, .storage = x->storage, .shape = shape};
    y.numel = tt__shape_numel(&shape);
    set_strides(&y, stride);
    return y;
}

tt_tensor *tt__tensor_borrow(const char *who, const tt_device *device, void *data, tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tensor_shell(who, shape, dtype);
    if (!x)
        return NULL;
    if (!data && x->numel) {
        tt__tensor_fail(TT_ERR_INVALID, "%s: data is NULL for %s", who, TT__DESCRIBE(x));
        tt__pool_free(x);
        return NULL;
    }
    x->storage = tt__storage_borrow(device, data);
    if (!x->storage) {
        tt__pool_free(x);
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a tensor", who);
    }
    x->data = data;
    set_strides(x, NULL);
    return give_to_scope(x, 0);
}

tt_tensor *(tt_from_blob)(void *data, tt_shape shape, tt_dtype dtype) {
    return tt__tensor_borrow("tt_from_blob", &tt__cpu_device, data, shape, dtype);
}

/* ---- owning ---- */

tt_tensor *tt__tensor_ref(tt_tensor *x) {
    if (x)
        atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

void tt__tensor_unref(tt_tensor *x) {
    if (!x || atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (x->history)
        x->history->release(x->history);
    tt__storage_unref(x->storage);
    tt__tensor_means_to_stay(x);
    x->magic = TT__FREED;
    tt__quarantine(x, sizeof *x, tt__pool_free);
}

tt_tensor *tt__tensor_watch(tt_tensor *x) {
    if (x)
        atomic_fetch_add_explicit(&x->watchers, 1, memory_order_relaxed);
    return tt__tensor_ref(x);
}

void tt__tensor_unwatch(tt_tensor *x) {
    if (x)
        atomic_fetch_sub_explicit(&x->watchers, 1, memory_order_relaxed);
    tt__tensor_unref(x);
}

bool tt__tensor_is_exclusive(const tt_tensor *x) {
    return atomic_load_explicit(&x->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&x->storage->refs, memory_order_acquire) == 1 && x->storage->bytes &&
           !x->storage->pinned; /* a copy may still read pinned memory */
}

tt_tensor *tt__abandon(tt_tensor *x) {
    bool of_scope = x && x->owner == TT__OWNER_SCOPE && !x->shown;
    bool of_nobody = x && x->owner == TT__OWNER_CALLER && (x->unscoped || !x->shown); /* else the user kept it */
    if (of_scope)
        tt__scope_remove(&x->entry, TT__ENTRY_TENSOR);
    if (of_scope || of_nobody)
        tt__tensor_unref(x);
    return NULL;
}

tt_tensor *tt_keep(tt_tensor *x) {
    if (!x || !tt__tensor_check("tt_keep", x))
        return x;
    tt__tensor_means_to_stay(x);
    if (x->owner == TT__OWNER_SCOPE) {
        tt__scope_remove(&x->entry, TT__ENTRY_TENSOR);
        x->owner = TT__OWNER_CALLER;
        x->storage->recycle = false;
    } else if (x->owner == TT__OWNER_LENDER) {
        tt__tensor_ref(x);
        x->owner = TT__OWNER_CALLER;
    }
    return x;
}

void tt_tensor_free(tt_tensor *x) {
    if (!x || !tt__tensor_check("tt_tensor_free", x))
        return;
    if (x->owner != TT__OWNER_CALLER) {
        tt__fail(TT_ERR_STATE,
                 "tt_tensor_free: %s belongs to %s, which frees it; tt_keep() takes a tensor out of a scope",
                 TT__DESCRIBE(x), x->owner == TT__OWNER_SCOPE ? "a scope" : x->holder);
        return;
    }
    tt__tensor_unref(x);
}

tt_status tt__tensor_adopt(tt_tensor *x, const char *holder) {
    if (x->owner == TT__OWNER_HOLDER || x->owner == TT__OWNER_LENDER)
        return tt__fail(TT_ERR_STATE, "%s cannot take %s, which belongs to %s already", holder, TT__DESCRIBE(x),
                        x->holder);
    if (x->history && !x->history->is_leaf)
        return tt__fail(TT_ERR_STATE, "%s cannot take %s, which is the result of a recorded operator; tt_detach() it",
                        holder, TT__DESCRIBE(x));
    tt_keep(x);
    x->owner = TT__OWNER_HOLDER;
    x->holder = holder;
    x->storage->recycle = false;
    return TT_OK;
}

void tt__tensor_disown(tt_tensor *x) {
    if (!x)
        return;
    x->owner = TT__OWNER_CALLER;
    tt__tensor_unref(x);
}

tt_status tt__tensor_lend(tt_tensor *x, const char *lender) {
    TT__TRY(tt__tensor_adopt(x, lender));
    x->owner = TT__OWNER_LENDER;
    return TT_OK;
}

void tt__tensor_take_back(tt_tensor *x) {
    if (x && x->owner == TT__OWNER_LENDER)
        x->owner = TT__OWNER_CALLER;
    tt__tensor_unref(x);
}

bool tt__tensor_is_shared(const tt_tensor *x) {
    return atomic_load_explicit(&x->storage->refs, memory_order_acquire) > 1;
}

tt_status tt__tensor_set_data(tt_tensor *x, void *data) {
    size_t bytes = (size_t)x->numel * tt_dtype_size(x->dtype);
    const tt_device *device = tt__device_of(x);
    tt__storage *storage = data ? tt__storage_borrow(device, data) : tt__storage_new(device, bytes);
    if (!storage)
        return tt__fail(TT_ERR_MEMORY, "no memory for %s (%zu bytes)", TT__DESCRIBE(x), bytes);
    storage->recycle = x->storage->recycle;
    tt__storage_unref(x->storage);
    x->storage = storage;
    x->data = storage->data;
    return TT_OK;
}

void tt__tensor_swap(tt_tensor *a, tt_tensor *b) {
    tt__storage *storage = a->storage;
    void *data = a->data;
    tt_dtype dtype = a->dtype;
    int64_t stride[TT_MAX_DIMS];
    memcpy(stride, a->stride, sizeof stride);
    a->storage = b->storage;
    a->data = b->data;
    a->dtype = b->dtype;
    set_strides(a, b->stride);
    b->storage = storage;
    b->data = data;
    b->dtype = dtype;
    set_strides(b, stride);
}

/* ---- looking ---- */

const char *tt__away_text(const tt_tensor *x, char *text, size_t size) {
    const char *name = x->storage->away_name;
    snprintf(text, size,
             "parameter \"%s\", %s, is spread over the ranks: it is whole while its unit runs forward or backward, and "
             "after tt_fully_shard_gather()",
             name ? name : "?", TT__DESCRIBE(x));
    return text;
}

tt_status tt__tensor_check_writable(const char *who, const tt_tensor *x) {
    for (int d = 0; d < x->shape.ndim; d++)
        if (x->stride[d] == 0 && x->shape.dim[d] > 1)
            return tt__fail(TT_ERR_INVALID, "%s: %s repeats elements in memory; tt_clone() it first", who,
                            TT__DESCRIBE(x));
    return x->storage->pinned ? tt__pinned_wait(x->storage->pinned) : TT_OK;
}

bool tt__tensor_check_alive(const char *who, const tt_tensor *x) {
    if (__builtin_expect(x->magic == TT__ALIVE, 1))
        return true;
    tt__tensor_fail(TT_ERR_STATE, "%s: expected a tensor, got %s", who,
                    x->magic == TT__FREED ? "one that was freed, or whose scope ended (tt_keep() takes one out of it)"
                                          : "a pointer to something else");
    return false;
}

bool tt__tensor_check(const char *who, const tt_tensor *x) {
    if (!tt__tensor_check_alive(who, x))
        return false;
    if (__builtin_expect(!tt__storage_is_away(x->storage), 1))
        return true;
    tt__tensor_fail(TT_ERR_STATE, "%s: %s", who, tt__away_text(x, (char[400]){0}, 400));
    return false;
}

/* ---- a tensor in words, for errors of all layers ---- */

const char *tt_tensor_describe(const tt_tensor *x, char *out, size_t size) {
    if (!out || !size)
        return out;
    int n = snprintf(out, size, "%s", x ? tt_dtype_name(x->dtype) : "NULL");
    if (x && (size_t)n + 1 < size) {
        out[n++] = ' ';
        tt__shape_text(&x->shape, out + n, size - (size_t)n);
    }
    return out;
}
