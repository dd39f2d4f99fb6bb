#include "autograd/broadcast.h"

#include "base/error.h"
#include "tensor/cpu/kernels.h"
#include "tensor/pool.h"

#include <string.h>

bool tt__broadcast_shape(const tt_shape *a, const tt_shape *b, tt_shape *out) {
    out->ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 1; i <= out->ndim; i++) { /* from the end */
        int64_t m = i <= a->ndim ? a->dim[a->ndim - i] : 1, n = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (m != n && m != 1 && n != 1)
            return false;
        out->dim[out->ndim - i] = m == 1 ? n : m;
    }
    return true;
}

void tt__broadcast_strides(const tt_shape *shape, const int64_t *stride, const tt_shape *as, int64_t *out) {
    for (int i = 1; i <= as->ndim; i++) {
        bool repeated = i > shape->ndim || (shape->dim[shape->ndim - i] == 1 && as->dim[as->ndim - i] != 1);
        out[as->ndim - i] = repeated ? 0 : stride[shape->ndim - i];
    }
}

static void run(const tt__binary *op, const tt_tensor *a, const tt_tensor *b, tt_tensor *y) {
    int64_t a_stride[TT_MAX_DIMS], b_stride[TT_MAX_DIMS];
    tt__broadcast_strides(&a->shape, a->stride, &y->shape, a_stride);
    tt__broadcast_strides(&b->shape, b->stride, &y->shape, b_stride);
    size_t size = tt_dtype_size(y->dtype);
    tt__iter it = tt__iter_begin(&y->shape, 3, (void *[]){y->data, a->data, b->data},
                                 (const int64_t *[]){y->stride, a_stride, b_stride}, (size_t[]){size, size, size});
    for (; it.more; tt__iter_next(&it)) {
        if (y->dtype == TT_F32) {
            op->f32(it.n, (float *)it.p[1], it.step[1], (float *)it.p[2], it.step[2], (float *)it.p[0]);
            continue;
        }
        const double *p = (double *)it.p[1], *q = (double *)it.p[2];
        for (int64_t i = 0; i < it.n; i++)
            ((double *)it.p[0])[i] = op->f64(p[i * it.step[1]], q[i * it.step[2]]);
    }
}

tt_tensor *tt__binary_forward(const tt__binary *op, tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__CHECK_FLOATS(op->who, {"a", a}, {"b", b}))
        return NULL;
    tt_shape shape;
    if (!tt__broadcast_shape(&a->shape, &b->shape, &shape))
        return tt__tensor_fail(
            TT_ERR_SHAPE, "%s: expected shapes that broadcast (equal, or 1, counted from the last), got a %s, b %s",
            op->who, TT__DESCRIBE(a), TT__DESCRIBE(b));
    tt_tensor *y = tt__tensor_new(op->who, shape, a->dtype);
    if (!y)
        return NULL;
    run(op, a, b, y);
    if (TT__WANTS_GRAD(a, b) && !TT__RECORD(op->who, op->backward, y, a, b))
        return NULL;
    return y;
}

/* d += g * factor * o, row by row. Where d is repeated it is a sum of many: then it is kept in f64, and rounded once. */
#define ADD_ROW(name, type, sum_type)                                                        \
    static void name(const tt__iter *it, double factor, bool times_other) {                  \
        const type *g = (type *)it->p[1], *o = (type *)it->p[2], f = (type)factor;           \
        for (int64_t i = 0; i < it->n; i++)                                                  \
            ((sum_type *)it->p[0])[i * it->step[0]] +=                                       \
                (sum_type)(g[i * it->step[1]] * f * (times_other ? o[i * it->step[2]] : 1)); \
    }
ADD_ROW(add_row_f32, float, float)
ADD_ROW(add_row_f64, double, double)
ADD_ROW(sum_row_f32, float, double)
#undef ADD_ROW

/* to (`shape`, of `dtype`) += g * factor * other */
static void add_products(const tt_shape *shape, const tt_tensor *g, double factor, const tt_tensor *other,
                         tt_dtype dtype, void *to) {
    int64_t flat[TT_MAX_DIMS], d_stride[TT_MAX_DIMS], o_stride[TT_MAX_DIMS];
    tt__shape_strides(shape, flat);
    tt__broadcast_strides(shape, flat, &g->shape, d_stride);
    const tt_tensor *o = other ? other : g;
    tt__broadcast_strides(&o->shape, o->stride, &g->shape, o_stride);
    size_t size = tt_dtype_size(g->dtype);
    tt__iter it = tt__iter_begin(&g->shape, 3, (void *[]){to, g->data, o->data},
                                 (const int64_t *[]){d_stride, g->stride, o_stride},
                                 (size_t[]){tt_dtype_size(dtype), size, size});
    for (; it.more; tt__iter_next(&it)) {
        if (g->dtype == TT_F64)
            add_row_f64(&it, factor, other != NULL);
        else if (dtype == TT_F64)
            sum_row_f32(&it, factor, other != NULL);
        else
            add_row_f32(&it, factor, other != NULL);
    }
}

/* An f32 input that was repeated. */
static tt_status sum_products(const tt_tensor *x, const tt_tensor *g, double factor, const tt_tensor *other,
                              tt__grad_to to) {
    double *sums = tt__pool_alloc((size_t)x->numel * sizeof *sums);
    float *d = to.data;
    if (!sums)
        return tt__fail(TT_ERR_MEMORY, "tt_backward: no memory to add up a gradient of %s", TT__DESCRIBE(x));
    memset(sums, 0, (size_t)x->numel * sizeof *sums);
    add_products(&x->shape, g, factor, other, TT_F64, sums);
    for (int64_t i = 0; i < x->numel; i++)
        d[i] = (float)(to.accumulate ? (double)d[i] + sums[i] : sums[i]);
    tt__pool_free(sums);
    return TT_OK;
}

tt_status tt__broadcast_backward(tt__node *node, int input, double factor, const tt_tensor *other) {
    const tt_tensor *x = node->input[input], *g = node->grad;
    tt__grad_to to = tt__grad_begin(node, input);
    if (!to.data)
        return TT_OK;
    bool same = tt__shape_equal(&x->shape, &g->shape);
    bool plain = other && g->dtype == TT_F32 && other->contiguous && tt__shape_equal(&other->shape, &g->shape);
    if (!same && x->dtype == TT_F32)
        return sum_products(x, g, factor, other, to);
    if (same && !other) {
        tt__ops_scale(g->dtype, g->numel, g->data, factor, to);
    } else if (same && plain && factor == 1 && !to.accumulate) {
        tt__elementwise()->mul(g->numel, g->data, 1, other->data, 1, to.data);
    } else {
        if (!to.accumulate)
            memset(to.data, 0, (size_t)x->numel * tt_dtype_size(x->dtype));
        add_products(&x->shape, g, factor, other, x->dtype, to.data);
    }
    return TT_OK;
}
