#include "tensor/tensor.h"

#include "base/error.h"
#include "tensor/pool.h"

#include <string.h>

/* Storage of this size and more goes back to the system when its last tensor was not a scope's: such tensors (parameters, data sets) are
 * not remade in every step. */
static const size_t large_bytes = (size_t)1 << 20;

/* ---- storage: one block, a header of 64 bytes and the elements ---- */

enum { STORAGE_HEADER = 64 };
_Static_assert(sizeof(tt__storage) <= STORAGE_HEADER, "the elements stay 64-byte aligned");

static tt__storage *storage_new(size_t bytes) {
    tt__storage *storage = tt__pool_alloc(STORAGE_HEADER + bytes);
    if (storage)
        *storage = (tt__storage){.refs = 1, .recycle = true, .bytes = bytes};
    return storage;
}

static void *storage_data(tt__storage *storage) { return (char *)storage + STORAGE_HEADER; }

void tt__storage_unref(tt__storage *storage) {
    if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (storage->recycle || storage->bytes < large_bytes)
        tt__pool_free(storage);
    else
        tt__pool_discard(storage);
}

/* ---- tensors ---- */

/* A tensor without storage, its shape and element type checked: all tensors begin here. */
static tt_tensor *tensor_shell(const char *who, tt_shape shape, tt_dtype dtype) {
    int64_t numel = tt__shape_numel(&shape);
    if (!tt_dtype_size(dtype))
        return tt__tensor_fail(TT_ERR_DTYPE, "%s: expected an element type, got number %d", who, (int)dtype);
    if (!tt__is_tensor_dtype(dtype))
        return tt__tensor_fail(
            TT_ERR_DTYPE, "%s: tensors of %s are not supported; f32, f64, i32, i64 and u8 are (collectives take %s)",
            who, tt_dtype_name(dtype), tt_dtype_name(dtype));
    if (numel < 0) {
        bool bad_ndim = shape.ndim < 0 || shape.ndim > TT_MAX_DIMS;
        tt_tensor named = {.dtype = dtype, .shape = bad_ndim ? (tt_shape){.ndim = 0} : shape};
        if (bad_ndim)
            return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected 0 to %d dimensions, got %d", who, TT_MAX_DIMS,
                                   shape.ndim);
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected sizes of at least 0 whose product fits memory, got %s", who,
                               TT__DESCRIBE(&named));
    }
    tt_tensor *x = tt__pool_alloc(sizeof *x);
    if (!x)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a tensor", who);
    memset(x, 0, sizeof *x);
    x->dtype = dtype;
    x->shape = shape;
    x->numel = numel;
    x->refs = 1;
    return x;
}

tt_tensor *tt__tensor_new(const char *who, tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tensor_shell(who, shape, dtype);
    if (!x)
        return NULL;
    size_t bytes = (size_t)x->numel * tt_dtype_size(dtype);
    x->storage = storage_new(bytes);
    if (!x->storage) {
        tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for %s (%zu bytes)", who, TT__DESCRIBE(x), bytes);
        tt__pool_free(x);
        return NULL;
    }
    x->data = storage_data(x->storage);
    x->contiguous = true;
    tt__shape_strides(&shape, x->stride);
    tt__scope_add(x);
    return x;
}

/* Do these strides visit the elements in row-major order without gaps? Those of dimensions of size 1 don't matter. */
static bool is_contiguous(const tt_shape *shape, const int64_t *stride) {
    int64_t n = 1;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        if (shape->dim[d] != 1 && stride[d] != n)
            return false;
        n *= shape->dim[d];
    }
    return true;
}

tt_tensor *tt__tensor_alias(const char *who, const tt_tensor *x, tt_shape shape, const int64_t *stride,
                            int64_t offset) {
    tt_tensor *y = tensor_shell(who, shape, x->dtype);
    if (!y)
        return NULL;
    y->storage = x->storage;
    atomic_fetch_add_explicit(&y->storage->refs, 1, memory_order_relaxed);
    y->data = (char *)x->data + offset * (int64_t)tt_dtype_size(x->dtype);
    memcpy(y->stride, stride, (size_t)shape.ndim * sizeof *stride);
    y->contiguous = y->numel == 0 || is_contiguous(&shape, stride);
    tt__scope_add(y);
    return y;
}

tt_tensor *tt_from_blob(void *data, tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tensor_shell("tt_from_blob", shape, dtype);
    if (!x)
        return NULL;
    if (!data && x->numel) {
        tt__tensor_fail(TT_ERR_INVALID, "tt_from_blob: data is NULL for %s", TT__DESCRIBE(x));
        tt__pool_free(x);
        return NULL;
    }
    x->storage = storage_new(0);
    if (!x->storage) {
        tt__pool_free(x);
        return tt__tensor_fail(TT_ERR_MEMORY, "tt_from_blob: no memory for a tensor");
    }
    x->data = data;
    x->contiguous = true;
    tt__shape_strides(&shape, x->stride);
    tt__scope_add(x);
    return x;
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
    tt__pool_free(x);
}

tt_tensor *tt_keep(tt_tensor *x) {
    if (x && x->owner == TT__OWNER_SCOPE) {
        tt__scope_remove(x);
        x->storage->recycle = false;
    } else if (x && x->owner == TT__OWNER_LENDER) {
        tt__tensor_ref(x);
        x->owner = TT__OWNER_CALLER;
    }
    return x;
}

void tt_tensor_free(tt_tensor *x) {
    if (!x)
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
    if (x->spent || (x->history && !x->history->is_leaf))
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
    tt__storage *storage = storage_new(data ? 0 : bytes);
    if (!storage)
        return tt__fail(TT_ERR_MEMORY, "no memory for %s (%zu bytes)", TT__DESCRIBE(x), bytes);
    storage->recycle = x->storage->recycle;
    tt__storage_unref(x->storage);
    x->storage = storage;
    x->data = data ? data : storage_data(storage);
    return TT_OK;
}
