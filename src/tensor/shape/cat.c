/* Joining tensors: each is copied to its place in the result. */
#include "tensor/ops/ops.h"

#include <inttypes.h>

/* View of y with x's shape, from entry `start` of dimension `dim` on; when x is one entry, without that dimension. */
static tt_tensor place_for(const tt_tensor *y, const tt_tensor *x, int dim, int64_t start) {
    int64_t stride[TT_MAX_DIMS];
    bool stacked = x->shape.ndim < y->shape.ndim;
    for (int d = 0; d < x->shape.ndim; d++)
        stride[d] = y->stride[stacked && d >= dim ? d + 1 : d];
    tt_tensor place = tt__tensor_seen(y, x->shape, stride);
    place.data = (char *)y->data + start * y->stride[dim] * (int64_t)tt_dtype_size(y->dtype);
    return place;
}

/* Do two shapes agree in all dimensions other than `but`? */
static bool shapes_agree(const tt_shape *a, const tt_shape *b, int but) {
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (d != but && a->dim[d] != b->dim[d])
            return false;
    return true;
}

/* Check tensors 1 to n - 1 against number 0. */
static bool check_joined(const char *who, int n, tt_tensor *const *x, int but) {
    for (int i = 1; i < n; i++) {
        if (x[i]->dtype != x[0]->dtype)
            return tt__tensor_fail(TT_ERR_DTYPE, "%s: expected tensors of one dtype, got number 0 %s, number %d %s",
                                   who, TT__DESCRIBE(x[0]), i, TT__DESCRIBE(x[i]));
        if (!shapes_agree(&x[0]->shape, &x[i]->shape, but))
            return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected tensors of one shape%s, got number 0 %s, number %d %s",
                                   who, but < 0 ? "" : " but for the joined dimension", TT__DESCRIBE(x[0]), i,
                                   TT__DESCRIBE(x[i]));
    }
    return tt__same_device(who, n, (const tt_tensor *const *)x);
}

/* Make y in the order of memory of `like`, and copy all into it. */
static tt_tensor *cat_into_new(const char *who, int n, tt_tensor *const *x, tt_shape shape, const int64_t *like,
                               int dim) {
    int64_t stride[TT_MAX_DIMS], at = 0;
    tt__shape_dense_strides(&shape, like, stride);
    tt_tensor *y = tt__tensor_new_on(who, tt__device_of(x[0]), shape, x[0]->dtype, stride);
    for (int i = 0; y && i < n; i++) {
        tt_tensor place = place_for(y, x[i], dim, at);
        at += x[i]->shape.ndim < shape.ndim ? 1 : x[i]->shape.dim[dim];
        if (tt__copy_out(who, &place, x[i]))
            return tt__abandon(y);
    }
    return y;
}

tt_tensor *tt__cat(const char *who, int n, tt_tensor *const *x, int dim) {
    tt_shape shape = x[0]->shape;
    int d = tt__dim_index(shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x[0]));
    if (!check_joined(who, n, x, d))
        return NULL;
    for (int i = 1; i < n; i++)
        if (__builtin_add_overflow(shape.dim[d], x[i]->shape.dim[d], &shape.dim[d]))
            shape.dim[d] = INT64_MAX; /* which no tensor holds */
    return cat_into_new(who, n, x, shape, x[0]->stride, d);
}

tt_tensor *tt__stack(const char *who, int n, tt_tensor *const *x, int dim) {
    int ndim = x[0]->shape.ndim, d = tt__dim_index(ndim + 1, dim);
    if (d < 0 || ndim == TT_MAX_DIMS)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no place %d for another dimension in %s, of at most %d", who, dim,
                               TT__DESCRIBE(x[0]), TT_MAX_DIMS);
    if (!check_joined(who, n, x, -1))
        return NULL;
    tt_shape shape = {.ndim = ndim + 1};
    int64_t like[TT_MAX_DIMS] = {0};
    for (int k = 0; k < ndim; k++) {
        shape.dim[k < d ? k : k + 1] = x[0]->shape.dim[k];
        like[k < d ? k : k + 1] = x[0]->stride[k];
    }
    shape.dim[d] = n;
    like[d] = d < ndim ? x[0]->shape.dim[d] * x[0]->stride[d] : 0;
    return cat_into_new(who, n, x, shape, like, d);
}
