#include "tensor/tensor.h"

static const char who[] = "tt_argmax";

/* The first of the largest among n elements; NaN counts as largest. */
#define ARGMAX(type)                                                       \
    static int64_t argmax_##type(const type *x, int64_t n, int64_t step) { \
        int64_t best = 0;                                                  \
        for (int64_t i = 1; i < n; i++) {                                  \
            type v = x[i * step], b = x[best * step];                      \
            if (b == b && (v > b || v != v))                               \
                best = i;                                                  \
        }                                                                  \
        return best;                                                       \
    }
ARGMAX(float)
ARGMAX(double)
ARGMAX(int32_t)
ARGMAX(int64_t)
ARGMAX(uint8_t)
#undef ARGMAX

static int64_t argmax(tt_dtype dtype, const void *x, int64_t n, int64_t step) {
    switch (dtype) {
    case TT_F32:
        return argmax_float(x, n, step);
    case TT_F64:
        return argmax_double(x, n, step);
    case TT_I32:
        return argmax_int32_t(x, n, step);
    case TT_I64:
        return argmax_int64_t(x, n, step);
    case TT_U8:
        return argmax_uint8_t(x, n, step);
    default: /* no tensor has another type */
        return 0;
    }
}

/* Where the line number `i` along dimension d begins, in elements: i counts the other dimensions in row-major order. */
static int64_t line_begin(const tt_tensor *x, int d, int64_t i) {
    int64_t at = 0;
    for (int k = x->shape.ndim - 1; k >= 0; k--) {
        if (k == d)
            continue;
        at += i % x->shape.dim[k] * x->stride[k];
        i /= x->shape.dim[k];
    }
    return at;
}

tt_tensor *tt_argmax(tt_tensor *x, int dim) {
    if (!x)
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0 || x->shape.dim[d] == 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d with elements in %s", who, dim, TT__DESCRIBE(x));
    tt_shape shape = {.ndim = x->shape.ndim - 1};
    for (int k = 0; k < shape.ndim; k++)
        shape.dim[k] = x->shape.dim[k < d ? k : k + 1];
    tt_tensor *y = tt__tensor_new(who, shape, TT_I64);
    int64_t size = (int64_t)tt_dtype_size(x->dtype);
    for (int64_t i = 0; y && i < y->numel; i++)
        ((int64_t *)y->data)[i] =
            argmax(x->dtype, (char *)x->data + line_begin(x, d, i) * size, x->shape.dim[d], x->stride[d]);
    return y;
}
