/* The inside of a tensor, for the layers above.
 *
 * Life. A tensor is counted: one reference is its owner's (scope, caller or holder), others are the tape's, so that what backward needs
 * stays whoever lets go. Its storage is counted by the tensors that use it. Counts are atomic, as parameters may be read by several threads. */
#ifndef TT_TENSOR_TENSOR_H
#define TT_TENSOR_TENSOR_H

#include <stdatomic.h>
#include <tutti/tensor.h>

typedef struct tt__storage {
    _Atomic int refs;
    bool recycle; /* goes back to the thread's pool; else, if large, to the system */
    size_t bytes; /* of memory of our own; 0: the memory is borrowed */
} tt__storage;

typedef enum tt__owner { TT__OWNER_CALLER, TT__OWNER_SCOPE, TT__OWNER_HOLDER, TT__OWNER_LENDER } tt__owner;

/* What autograd hangs on a tensor: a node (made by a recorded operator) or a leaf. `release` is called once, with the tensor. */
typedef struct tt__history {
    void (*release)(struct tt__history *self);
    bool is_leaf;
} tt__history;

struct tt_tensor {
    void *data; /* first element */
    tt_dtype dtype;
    bool contiguous;
    bool requires_grad;
    bool spent; /* was made by a recorded operator whose record is gone */
    int64_t numel;
    tt_shape shape;
    int64_t stride[TT_MAX_DIMS]; /* in elements */
    tt__storage *storage;
    tt__history *history; /* or NULL */
    _Atomic int refs;
    tt__owner owner;
    const char *holder;            /* "a module": what the holder or lender is, for errors */
    struct tt_tensor *prev, *next; /* in the scope's list */
};

/* ---- making; owned by the open scope, else by the caller ---- */

/* Uninitialised, contiguous. NULL and an error that starts with `who` if the shape or dtype is impossible or memory is out. */
tt_tensor *tt__tensor_new(const char *who, tt_shape shape, tt_dtype dtype);

/* Another tensor over x's storage, first element at x's + `offset` elements; no history. */
tt_tensor *tt__tensor_alias(const char *who, const tt_tensor *x, tt_shape shape, const int64_t *stride, int64_t offset);

/* ---- owning ---- */

/* Take x from its scope or caller for an object that holds it ("a module"); tt_tensor_free() and scopes leave it alone from then on.
 * TT_ERR_STATE if something else holds it, or if it has a recorded history. */
tt_status tt__tensor_adopt(tt_tensor *x, const char *holder);

/* End holding: the holder's reference is dropped. NULL is allowed. */
void tt__tensor_disown(tt_tensor *x);

/* Lend x to the caller: `lender` ("a loader") holds it as tt__tensor_adopt() does, but tt_keep() makes it the caller's. The
 * loan ends with tt__tensor_take_back(), which drops the lender's reference: x goes, unless it was kept. NULL is allowed there. */
tt_status tt__tensor_lend(tt_tensor *x, const char *lender);
void tt__tensor_take_back(tt_tensor *x);

/* Does another tensor use x's storage? */
bool tt__tensor_is_shared(const tt_tensor *x);

/* Count a reference / drop one. NULL is allowed. */
tt_tensor *tt__tensor_ref(tt_tensor *x);
void tt__tensor_unref(tt_tensor *x);
void tt__storage_unref(tt__storage *storage);

/* x's elements lie at `data` from now on (borrowed; NULL: in new memory of its own). Values are not moved. x is contiguous and not a view. */
tt_status tt__tensor_set_data(tt_tensor *x, void *data);

/* ---- errors of expressions ---- */

/* Record an error as tt__fail_null() does, and as the scope's first one if it has none yet. Returns NULL. */
void *tt__tensor_fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* The scope's first error, which becomes the thread's last one, and is cleared. Without one: the thread's last error if there is one, else
 * TT_ERR_INVALID "`who`: the tensor is NULL". Never TT_OK. */
tt_status tt__tensor_first_error(const char *who);

/* "f32 (20, 10)" in a buffer that lives to the end of the enclosing block; "NULL" for NULL. */
#define TT__DESCRIBE(x) tt_tensor_describe(x, (char[160]){0}, 160)

/* ---- scopes ---- */

void tt__scope_add(tt_tensor *x);    /* to the open scope, if any; sets owner */
void tt__scope_remove(tt_tensor *x); /* its owner is the caller now */

/* Called at the end of every scope, before its tensors go, with a number that grows with each scope begun in the thread: autograd drops what was
 * recorded since. Set once, by autograd. */
void tt__scope_set_ending(void (*fn)(uint64_t began));
uint64_t tt__scope_clock(void); /* counts scopes begun and calls of this, in this thread */

/* ---- shapes ---- */

/* Number of elements; -1 for a size below 0, an ndim out of range, or sizes above 0 whose product is over INT64_MAX / 16: where another size is 0
 * too, as strides could not hold it. */
int64_t tt__shape_numel(const tt_shape *shape);
void tt__shape_strides(const tt_shape *shape, int64_t *stride);
bool tt__shape_equal(const tt_shape *a, const tt_shape *b);
bool tt__is_float(tt_dtype dtype);
bool tt__is_tensor_dtype(tt_dtype dtype); /* the first five: no tensor has another */

/* Dimension `dim` with negative counting from the end: 0 .. ndim-1, or -1 if outside. */
int tt__dim_index(int ndim, int dim);

/* ---- views and copies without history ---- */

tt_tensor *tt__view(const char *who, const tt_tensor *x, tt_shape shape); /* one size may be -1 */
tt_tensor *tt__reshape(const char *who, const tt_tensor *x, tt_shape shape);
tt_tensor *tt__transpose(const char *who, const tt_tensor *x, int a, int b);
tt_tensor *tt__narrow(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t length);
tt_tensor *tt__clone(const char *who, const tt_tensor *x);

tt_tensor *tt__to(const char *who, const tt_tensor *x, tt_dtype dtype);

/* The element at p, of any dtype, as a double. */
double tt__load_f64(tt_dtype dtype, const void *p);

/* dst (any layout) := src, dst += src (floats). Same shape, same dtype: not checked. */
void tt__copy(tt_tensor *dst, const tt_tensor *src);
void tt__accumulate(tt_tensor *dst, const tt_tensor *src);

#endif
