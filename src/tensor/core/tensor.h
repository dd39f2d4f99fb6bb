/* The inside of a tensor, for the layers above.
 *
 * Life. A tensor is counted: one reference is its owner's (scope, caller or holder), others belong to further users.
 * Its storage is counted by the tensors that use it. Counts are atomic. */
#ifndef TT_TENSOR_TENSOR_H
#define TT_TENSOR_TENSOR_H

#include "tensor/core/scope.h"
#include "tensor/device/device.h"
#include "tensor/shape/shape.h"

#include <stdatomic.h>
#include <stddef.h>

/* ---- storage: the bytes that tensors share, on one device */

/* Counted by the tensors that use it, from any thread. */
typedef struct tt__storage {
    _Atomic int refs;
    _Atomic uint32_t version; /* grows with each write after the first; records compare it */
    _Atomic bool viewed;      /* another tensor was made over it: a view, or a detached one */
    bool recycle;             /* goes back to the thread's pool; else, if large, to the system */
    _Atomic bool away;        /* its elements are elsewhere: not to be read or written now */
    size_t bytes;             /* of owned memory; 0: the memory is borrowed */
    const tt_device *device;
    void *data;
    struct tt__pinned *pinned; /* owned: the pinned block that has the memory (pinned.h), or NULL */
    char *away_name; /* owned: the parameter whose elements these are, for errors while they are away; or NULL */
    void (*release)(void *data); /* frees `data` if it came from elsewhere and is owned; or NULL */
} tt__storage;

tt__storage *tt__storage_ref(tt__storage *storage);
void tt__storage_unref(tt__storage *storage); /* NULL is allowed */

/* Are the elements away? */
static inline bool tt__storage_is_away(const tt__storage *storage) {
    return atomic_load_explicit(&storage->away, memory_order_relaxed);
}

/* Note that the bytes are about to be, or were, overwritten: records made with them can't go backward any more. */
static inline void tt__storage_touch(tt__storage *storage) {
    atomic_fetch_add_explicit(&storage->version, 1, memory_order_relaxed);
}

/* Allocate `bytes` on `device`, uninitialised; NULL: no memory. */
tt__storage *tt__storage_new(const tt_device *device, size_t bytes);

/* The same on the host, in pinned memory for copies to `device`, or in other memory where there is none. */
tt__storage *tt__storage_new_pinned(const tt_device *device, size_t bytes);

/* Make a storage of `bytes` host bytes at `data`, which it owns from now on: release(data) frees them. NULL: no memory,
 * and they stay the caller's. */
tt__storage *tt__storage_take(void *data, size_t bytes, void (*release)(void *data));

/* Make a storage over the caller's memory, which must outlive it. */
tt__storage *tt__storage_borrow(const tt_device *device, void *data);

/* ---- tensors */

typedef enum tt__owner { TT__OWNER_CALLER, TT__OWNER_SCOPE, TT__OWNER_HOLDER, TT__OWNER_LENDER } tt__owner;

/* What autograd hangs on a tensor: a node (a recorded call that made it) or a leaf. */
typedef struct tt__history {
    void (*release)(struct tt__history *self); /* called when the tensor drops it */
    bool is_leaf;
    _Atomic bool spent; /* of a node: its record is gone */
} tt__history;

struct tt_tensor {
    tt__entry entry; /* first member: x's entry in its scope */
    uint32_t magic;  /* TT__ALIVE */
    tt_dtype dtype;
    void *data; /* first element; on a device that is not the host, not for plain pointers */
    bool contiguous;
    bool requires_grad;
    bool sparse_grad; /* as a leaf it gets sparse gradients: autograd/leaf.h */
    bool shown;       /* a function of the user's has seen it, so it lives as long as its scope */
    bool unscoped;    /* made with no scope open, and counted with unscoped_bytes (tensor.c) */
    tt__owner owner;
    _Atomic int refs;
    _Atomic int watchers; /* references of users that look at it anew in each call, such as optimizers */
    int output;           /* which one of its node's results it is */
    int64_t numel;
    tt_shape shape;
    int64_t stride[TT_MAX_DIMS]; /* in elements */
    tt__storage *storage;
    tt__history *history;  /* or NULL */
    const char *holder;    /* "a module": what TT__OWNER_HOLDER is, for errors */
    size_t unscoped_bytes; /* of the storage that was made for it */
};

static inline const tt_device *tt__device_of(const tt_tensor *x) { return x->storage->device; }

/* ---- making; owned by the open scope, else by the caller ---- */

/* Make a tensor: uninitialised, contiguous, on the host ("cpu"). NULL and an error that starts with `who` if the shape
 * or dtype is impossible or memory is out. */
tt_tensor *tt__tensor_new(const char *who, tt_shape shape, tt_dtype dtype);

/* The same at `data`, which the tensor owns from now on: release(data) frees it, also on failure. */
tt_tensor *tt__tensor_take(const char *who, void *data, void (*release)(void *data), tt_shape shape, tt_dtype dtype);

/* The same in pinned memory, for copies to and from `device`, or in other memory where there is none (pinned.h). A copy
 * to the device may still read it when the tensor is freed. */
tt_tensor *tt__tensor_new_pinned(const char *who, const tt_device *device, tt_shape shape, tt_dtype dtype);

/* Make the same on a device. `stride` (shape.ndim of them, dense: tt__shape_dense_strides()): the order of memory;
 * NULL: contiguous. */
tt_tensor *tt__tensor_new_on(const char *who, const tt_device *device, tt_shape shape, tt_dtype dtype,
                             const int64_t *stride);

/* Make a tensor over memory of the device that somebody else owns, as tt_from_blob() does over the host's. */
tt_tensor *tt__tensor_borrow(const char *who, const tt_device *device, void *data, tt_shape shape, tt_dtype dtype);

/* Make another tensor over x's storage, its first element at x's + `offset` elements; no history. */
tt_tensor *tt__tensor_alias(const char *who, const tt_tensor *x, tt_shape shape, const int64_t *stride, int64_t offset);

/* Make another tensor like x over its storage, without history and owner: the caller has the one reference, and drops
 * it by tt__tensor_unref(). */
tt_tensor *tt__tensor_detached(const char *who, const tt_tensor *x);

/* Is a matrix stored by its rows (`by` 0) or its columns (1): does each lie in memory without gaps, and none overlap?
 * Strides of sizes of 1 don't matter. */
static inline bool tt__matrix_is_stored(const tt_tensor *m, int by) {
    int along = 1 - by;
    return (m->stride[along] == 1 || m->shape.dim[along] == 1) &&
           (m->stride[by] >= m->shape.dim[along] || m->shape.dim[by] == 1);
}

/* View x with another shape and strides, for the length of a call: a value, not counted, that must not outlive x. */
tt_tensor tt__tensor_seen(const tt_tensor *x, tt_shape shape, const int64_t *stride);

/* ---- owning ---- */

/* Take x from its scope or caller for an object that holds it ("a module"); tt_tensor_free() and scopes leave it alone
 * from then on. TT_ERR_STATE if something else holds it, or if it has a recorded history. */
tt_status tt__tensor_adopt(tt_tensor *x, const char *holder);

/* End holding: drop the holder's reference. NULL is allowed. */
void tt__tensor_disown(tt_tensor *x);

/* Lend x to the caller: `lender` ("a loader") holds it as tt__tensor_adopt() does, but tt_keep() makes it the caller's.
 * The loan ends with tt__tensor_take_back(), which drops the lender's reference: x is freed, unless it was kept. NULL
 * is allowed there. */
tt_status tt__tensor_lend(tt_tensor *x, const char *lender);
void tt__tensor_take_back(tt_tensor *x);

/* Stop counting x, if it was made with no scope open, among those that a loop may have forgotten: it is kept, held, a
 * leaf, or ends. */
void tt__tensor_means_to_stay(tt_tensor *x);

/* Does another tensor use x's storage? */
bool tt__tensor_is_shared(const tt_tensor *x);

/* Count a reference / drop one. NULL is allowed. */
tt_tensor *tt__tensor_ref(tt_tensor *x);
void tt__tensor_unref(tt_tensor *x);

/* Count a reference of a user that assumes nothing about x's type and memory between its calls: a module that holds x
 * may convert it meanwhile. NULL is allowed. */
tt_tensor *tt__tensor_watch(tt_tensor *x);
void tt__tensor_unwatch(tt_tensor *x);

/* Is this reference the only one to the tensor and its storage? Then it may be changed or taken over. */
bool tt__tensor_is_exclusive(const tt_tensor *x);

/* Free a tensor that an operation made and will not return, rather than leave it to its scope or, with none open, to
 * nobody. Records keep what they need of it. NULL is allowed. Returns NULL. */
tt_tensor *tt__abandon(tt_tensor *x);

/* Let x use the memory at `data` from now on (borrowed; NULL: new memory of its own). Values are not moved. x is
 * contiguous, on the host, and not a view. */
tt_status tt__tensor_set_data(tt_tensor *x, void *data);

/* Do the same and move the values, on any device; on failure x stays as it is. */
tt_status tt__tensor_move(const char *who, tt_tensor *x, void *data);

/* Exchange storage, dtype and strides of two tensors of one shape; counts, owners and history stay, and so do other
 * tensors over either storage. */
void tt__tensor_swap(tt_tensor *a, tt_tensor *b);

/* ---- looking ---- */

/* Is x a tensor that still lives, and are its elements there? Else TT_ERR_STATE. Under TT_DEBUG=1, and where memory is
 * poisoned, every freed tensor is detected; otherwise only some. x is not NULL. */
bool tt__tensor_check(const char *who, const tt_tensor *x);

/* Does x still live? For calls that don't touch the elements. */
bool tt__tensor_check_alive(const char *who, const tt_tensor *x);

/* May x be written to? Waits for copies to a device that read it. TT_ERR_INVALID if it repeats elements in memory, as
 * an expanded tensor does: what is written to one place would be lost. x is not NULL. */
tt_status tt__tensor_check_writable(const char *who, const tt_tensor *x);

/* Write why x can't be used while its elements are away to `text` (size bytes), and return that. */
const char *tt__away_text(const tt_tensor *x, char *text, size_t size);

/* "f32 (20, 10)" in a buffer that lives to the end of the enclosing block; "NULL" for NULL. */
#define TT__DESCRIBE(x) tt_tensor_describe(x, (char[160]){0}, 160)

enum { TT__ALIVE = 0x54656e73, TT__FREED = 0x66726565 };

#endif
