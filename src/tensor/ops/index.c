/* Indexing: checks of indices, and the operations. */
#include "tensor/ops/ops.h"

#include "base/error.h"
#include "base/text/format.h"

#include <inttypes.h>

tt_tensor *tt__make_places(const char *who, const tt_tensor *x, tt_shape shape) {
    return tt__empty_beside(who, x, shape, TT_I64);
}

/* ---- checks */

tt_status tt__check_index(const char *who, const tt_tensor *x, int dim, const tt_tensor *index) {
    int64_t n = x->shape.dim[dim];
    char text[256];
    if (index->dtype != TT_I64) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected index i64, got %s", who, TT__DESCRIBE(index));
        return TT_ERR_DTYPE;
    }
    if (!TT__SAME_DEVICE(who, x, index))
        return tt_last_status();
    tt__format(text, sizeof text, "%s: expected indices in 0..%" PRId64 " (dimension %d of %s), got index", who, n - 1,
               dim, TT__DESCRIBE(x));
    return tt__check_within(who, index, 0, n - 1, 0, text);
}

/* Is `small` inside of `large` in all dimensions but `dim`? */
static bool fits_beside(const tt_tensor *small, const tt_tensor *large, int dim) {
    for (int d = 0; d < small->shape.ndim; d++)
        if (d != dim && small->shape.dim[d] > large->shape.dim[d])
            return false;
    return true;
}

bool tt__check_places(const char *who, const tt_tensor *x, int dim, const tt_tensor *index, const tt_tensor *src) {
    bool fits = index->shape.ndim == x->shape.ndim && fits_beside(index, x, dim);
    fits = fits && (!src || (src->shape.ndim == index->shape.ndim && fits_beside(index, src, -1)));
    if (!fits)
        tt__tensor_fail(TT_ERR_SHAPE,
                        "%s: expected index to have as many dimensions as x and to be no larger but in dimension %d%s, "
                        "got x %s, index %s%s%s",
                        who, dim, src ? ", and no larger than src" : "", TT__DESCRIBE(x), TT__DESCRIBE(index),
                        src ? ", src " : "", src ? TT__DESCRIBE(src) : "");
    else if (src && src->dtype != x->dtype)
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected x and src of one dtype, got x %s, src %s", who, TT__DESCRIBE(x),
                        TT__DESCRIBE(src));
    else
        return !tt__check_index(who, x, dim, index) && TT__SAME_DEVICE(who, x, src);
    return false;
}

/* ---- reading */

tt_status tt__index_select_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    tt__kernel_index_select run = TT__KERNEL(who, y, index_select);
    return run && TT__SAME_DEVICE(who, y, x, index) ? run(y, x, dim, index) : tt_last_status();
}

tt_status tt__gather_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    tt__kernel_gather run = TT__KERNEL(who, y, gather);
    return run && TT__SAME_DEVICE(who, y, x, index) ? run(y, x, dim, index) : tt_last_status();
}

tt_status tt__scatter_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    tt__kernel_scatter run = TT__KERNEL(who, y, scatter);
    return run && TT__SAME_DEVICE(who, y, x, index) ? run(y, x, dim, index) : tt_last_status();
}

/* ---- adding: floats of 16 bits are added up in f32 and rounded once */

typedef tt_status (*add_at_fn)(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);

static tt_status add_wide(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index,
                          add_at_fn add) {
    tt_tensor *sum = tt__to(who, y, TT_F32), *from = sum ? tt__to(who, x, TT_F32) : NULL;
    tt_status status = from ? add(who, sum, from, dim, index) : tt_last_status();
    if (!status)
        status = tt__copy_out(who, y, sum);
    tt__abandon(from);
    tt__abandon(sum);
    return status;
}

static bool adds_wide(const tt_tensor *y) { return y->dtype == TT_F16 || y->dtype == TT_BF16; }

tt_status tt__index_add_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    if (adds_wide(y))
        return add_wide(who, y, x, dim, index, tt__index_add_out);
    tt__kernel_index_add run = TT__KERNEL(who, y, index_add);
    return run && TT__SAME_DEVICE(who, y, x, index) ? run(y, x, dim, index) : tt_last_status();
}

tt_status tt__scatter_add_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    if (adds_wide(y))
        return add_wide(who, y, x, dim, index, tt__scatter_add_out);
    tt__kernel_scatter_add run = TT__KERNEL(who, y, scatter_add);
    return run && TT__SAME_DEVICE(who, y, x, index) ? run(y, x, dim, index) : tt_last_status();
}
