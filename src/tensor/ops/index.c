/* Indexing and order: checks of elements and indices, reading and adding by index, triangles, running sums, sorting. */
#include "base/error.h"
#include "base/text/format.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>

tt_tensor *tt__make_places(const char *who, const tt_tensor *x, tt_shape shape) {
    return tt__empty_beside(who, x, shape, TT_I64);
}

/* ---- checks of elements */

tt_status tt__find_outside_out(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t *index,
                               int64_t *value) {
    tt__kernel_find_outside run = TT__KERNEL(who, x, find_outside);
    return run ? run(x, low, high, index, value) : tt_last_status();
}

bool tt__checks_later(const tt_tensor *x) {
    const tt__kernels *kernels = tt__device_of(x)->kernels[x->dtype];
    return kernels && kernels->expect_within;
}

tt_status tt__check_within(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t but,
                           const char *text) {
    int64_t index = -1, value = 0;
    if (tt__checks_later(x))
        return tt__device_of(x)->kernels[x->dtype]->expect_within(x, low, high, but, text);
    TT__TRY(tt__find_outside_out(who, x, low, high, &index, &value));
    if (index < 0)
        return TT_OK;
    tt__tensor_fail(TT_ERR_INVALID, "%s[%" PRId64 "] = %" PRId64, text, index, value);
    return TT_ERR_INVALID;
}

int64_t tt__find_nan(const char *who, const tt_tensor *x) {
    int64_t found = -1;
    int scope = tt_scope_begin();
    const tt_tensor *near = tt__device_is_host(tt__device_of(x)) ? x : tt__to_device(who, x, &tt__cpu_device);
    tt_tensor *wide = near ? tt__to(who, near, TT_F64) : NULL;
    tt_tensor *whole = wide ? tt__contiguous_begin(who, wide) : NULL;
    for (int64_t i = 0; whole && i < x->numel && found < 0; i++)
        if (isnan(((const double *)whole->data)[i]))
            found = i;
    if (whole)
        tt__contiguous_done(whole, wide);
    tt_scope_end(scope);
    return found;
}

/* ---- checks of indices */

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

/* ---- triangles, running sums */

tt_status tt__triangle_out(const char *who, tt_tensor *y, const tt_tensor *x, int64_t diagonal, bool upper) {
    tt__kernel_triangle run = TT__KERNEL(who, y, triangle);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, diagonal, upper) : tt_last_status();
}

tt_status tt__cumsum_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, bool backwards) {
    tt__kernel_cumsum run = TT__KERNEL(who, y, cumsum);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, dim, backwards) : tt_last_status();
}

/* ---- sort */

/* View x with dimension `dim` and the last one exchanged. */
static tt_tensor with_last(const tt_tensor *x, int dim) {
    int last = x->shape.ndim - 1;
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    for (int k = 0; k <= last; k++) {
        int from = k == dim ? last : k == last ? dim : k;
        shape.dim[k] = x->shape.dim[from];
        stride[k] = x->stride[from];
    }
    return tt__tensor_seen(x, shape, stride);
}

/* Sort rows along the last dimension, by way of contiguous stand-ins where the rows of y and indices are not. */
static tt_status sort_rows(const char *who, tt__kernel_sort run, tt_tensor *y, tt_tensor *indices, const tt_tensor *x,
                           bool descending) {
    tt_tensor *from = tt__contiguous_begin(who, x), *to = NULL, *places = NULL;
    if (from)
        to = y->contiguous ? y : tt__empty_beside(who, y, y->shape, y->dtype);
    if (to)
        places = y->contiguous ? indices : tt__empty_beside(who, indices, indices->shape, indices->dtype);
    tt_status status = places ? run(to, places, from, descending) : tt_last_status();
    if (!status && to != y)
        status = tt__copy_out(who, y, to);
    if (!status && to != y)
        status = tt__copy_out(who, indices, places);
    tt__contiguous_done(places, indices);
    tt__contiguous_done(to, y);
    tt__contiguous_done(from, x);
    return status;
}

tt_status tt__sort_out(const char *who, tt_tensor *y, tt_tensor *indices, const tt_tensor *x, int dim,
                       bool descending) {
    tt__kernel_sort run = TT__KERNEL(who, y, sort);
    if (!run || !TT__SAME_DEVICE(who, y, indices, x))
        return tt_last_status();
    if (x->shape.ndim == 0) {
        TT__TRY(tt__copy_out(who, y, x));
        return tt__fill_out(who, indices, 0);
    }
    tt_tensor to = with_last(y, dim), places = with_last(indices, dim), from = with_last(x, dim);
    return sort_rows(who, run, &to, &places, &from, descending);
}

/* ---- one hot */

/* Write 1 to y (..., n) where index (...) says, and 0 elsewhere. */
static tt_status mark_hot(const char *who, tt_tensor *y, const tt_tensor *index) {
    static const int64_t zero[TT_MAX_DIMS];
    int last = index->shape.ndim;
    tt_shape shape = index->shape;
    int64_t stride[TT_MAX_DIMS];
    for (int d = 0; d < last; d++)
        stride[d] = index->stride[d];
    shape.dim[last] = stride[last] = 1;
    shape.ndim = last + 1;
    tt_tensor places = tt__tensor_seen(index, shape, stride), *one = tt__empty_beside(who, y, TT_SCALAR, y->dtype);
    tt_status status = one ? tt__fill_out(who, one, 1) : tt_last_status();
    if (!status)
        status = tt__fill_out(who, y, 0);
    if (!status) {
        tt_tensor ones = tt__tensor_seen(one, shape, zero);
        status = tt__scatter_out(who, y, &ones, last, &places);
    }
    tt__abandon(one);
    return status;
}

tt_tensor *tt_one_hot(const tt_tensor *x, int64_t num_classes) {
    static const char who[] = "tt_one_hot";
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    if (num_classes < 1)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected at least one class, got %" PRId64, who, num_classes);
    if (x->shape.ndim == TT_MAX_DIMS)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected less than %d dimensions, got %s", who, TT_MAX_DIMS,
                               TT__DESCRIBE(x));
    tt_shape shape = x->shape;
    shape.dim[shape.ndim++] = num_classes;
    tt_tensor *y = tt__make_places(who, x, shape);
    if (!y || tt__check_index(who, y, shape.ndim - 1, x))
        return tt__abandon(y);
    return mark_hot(who, y, x) ? tt__abandon(y) : y;
}
