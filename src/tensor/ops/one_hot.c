#include "tensor/ops/ops.h"

#include <inttypes.h>

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
