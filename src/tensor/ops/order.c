/* Triangles, running sums, sorting. */
#include "tensor/ops/ops.h"

#include "base/error.h"

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
