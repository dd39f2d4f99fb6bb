#include "base/error.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <string.h>

static size_t bytes_of(const tt_tensor *x) { return (size_t)x->numel * tt_dtype_size(x->dtype); }

tt_tensor *tt_empty(tt_shape shape, tt_dtype dtype) { return tt__tensor_new("tt_empty", shape, dtype); }

tt_tensor *tt_zeros(tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tt__tensor_new("tt_zeros", shape, dtype);
    if (x)
        memset(x->data, 0, bytes_of(x));
    return x;
}

static void fill(tt_tensor *x, double value) {
#define FILL(type)                             \
    do {                                       \
        type *p = x->data;                     \
        for (int64_t i = 0; i < x->numel; i++) \
            p[i] = (type)value;                \
    } while (0)
    switch (x->dtype) {
    case TT_F32:
        FILL(float);
        break;
    case TT_F64:
        FILL(double);
        break;
    case TT_I32:
        FILL(int32_t);
        break;
    case TT_I64:
        FILL(int64_t);
        break;
    case TT_U8:
        FILL(uint8_t);
        break;
    default: /* no tensor has another type */
        break;
    }
#undef FILL
}

/* The integers an element type can hold, as doubles: a conversion from outside them is undefined in C. */
static bool fits(tt_dtype dtype, double value) {
    switch (dtype) {
    case TT_I32:
        return value > -2147483649.0 && value < 2147483648.0;
    case TT_I64:
        return value >= -9223372036854775808.0 && value < 9223372036854775808.0;
    case TT_U8:
        return value > -1.0 && value < 256.0;
    default:
        return true;
    }
}

static tt_tensor *full(const char *who, tt_shape shape, tt_dtype dtype, double value) {
    if (!fits(dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, value, tt_dtype_name(dtype));
    tt_tensor *x = tt__tensor_new(who, shape, dtype);
    if (x)
        fill(x, value);
    return x;
}

tt_tensor *tt_ones(tt_shape shape, tt_dtype dtype) { return full("tt_ones", shape, dtype, 1); }

tt_tensor *tt_full(tt_shape shape, tt_dtype dtype, double value) { return full("tt_full", shape, dtype, value); }

tt_tensor *tt_arange(int64_t n) {
    tt_tensor *x = tt__tensor_new("tt_arange", TT_SHAPE(n), TT_I64);
    int64_t *p = x ? x->data : NULL;
    for (int64_t i = 0; p && i < n; i++)
        p[i] = i;
    return x;
}

tt_tensor *tt_from_data(const void *data, tt_shape shape, tt_dtype dtype) {
    if (!data && tt__shape_numel(&shape) > 0)
        return tt__tensor_fail(TT_ERR_INVALID, "tt_from_data: data is NULL");
    tt_tensor *x = tt__tensor_new("tt_from_data", shape, dtype);
    if (x && x->numel)
        memcpy(x->data, data, bytes_of(x));
    return x;
}

void *tt_tensor_data(const tt_tensor *x) { return x ? x->data : NULL; }

float *tt_tensor_f32(const tt_tensor *x) {
    if (x && x->dtype != TT_F32)
        return tt__fail_null(TT_ERR_DTYPE, "tt_tensor_f32: expected f32, got %s", TT__DESCRIBE(x));
    return x ? x->data : NULL;
}

int64_t *tt_tensor_i64(const tt_tensor *x) {
    if (x && x->dtype != TT_I64)
        return tt__fail_null(TT_ERR_DTYPE, "tt_tensor_i64: expected i64, got %s", TT__DESCRIBE(x));
    return x ? x->data : NULL;
}

tt_status tt_item(const tt_tensor *x, double *value) {
    if (!x)
        return tt__tensor_first_error("tt_item");
    if (!value)
        return tt__fail(TT_ERR_INVALID, "tt_item: `value` is NULL");
    if (x->numel != 1)
        return tt__fail(TT_ERR_SHAPE, "tt_item: expected one element, got %s", TT__DESCRIBE(x));
    *value = tt__load_f64(x->dtype, x->data);
    return TT_OK;
}
