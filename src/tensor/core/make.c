#include "base/error.h"
#include "tensor/ops/ops.h"

#include <math.h>
#include <string.h>

tt_tensor *tt_empty(tt_shape shape, tt_dtype dtype) { return tt__tensor_new("tt_empty", shape, dtype); }

tt_tensor *tt_empty_like(const tt_tensor *x) {
    return x && tt__tensor_check("tt_empty_like", x) ? tt__empty_like("tt_empty_like", x) : NULL;
}

tt_status tt__fill_out(const char *who, tt_tensor *y, double value) {
    tt__kernel_fill run = TT__KERNEL(who, y, fill);
    return run ? run(y, value) : tt_last_status();
}

/* Can the element type hold the value? Converting a double outside of an integer's range is undefined in C. */
static bool type_holds(tt_dtype dtype, double value) {
    static const struct {
        double above, below;
    } range[TT__DTYPES] = {[TT_U8] = {-1, 256},
                           [TT_I8] = {-129, 128},
                           [TT_I16] = {-32769, 32768},
                           [TT_I32] = {-2147483649.0, 2147483648.0},
                           [TT_I64] = {-9223372036854777856.0, 9223372036854775808.0}};
    if ((unsigned)dtype >= TT__DTYPES || range[dtype].below == 0)
        return true;
    return value > range[dtype].above && value < range[dtype].below;
}

bool tt__dtype_holds(tt_dtype dtype, double value) {
    return type_holds(dtype, value) && (tt__is_float(dtype) || value == floor(value));
}

static tt_tensor *make_full(const char *who, tt_shape shape, tt_dtype dtype, double value) {
    if (!type_holds(dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, value, tt_dtype_name(dtype));
    tt_tensor *x = tt__tensor_new(who, shape, dtype);
    return x && tt__fill_out(who, x, value) ? tt__abandon(x) : x;
}

tt_tensor *tt_zeros(tt_shape shape, tt_dtype dtype) { return make_full("tt_zeros", shape, dtype, 0); }

tt_tensor *tt_ones(tt_shape shape, tt_dtype dtype) { return make_full("tt_ones", shape, dtype, 1); }

tt_tensor *tt_full(tt_shape shape, tt_dtype dtype, double value) { return make_full("tt_full", shape, dtype, value); }

static tt_tensor *make_like(const char *who, const tt_tensor *x, double value) {
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    if (!type_holds(x->dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, value, tt_dtype_name(x->dtype));
    tt_tensor *y = tt__empty_like(who, x);
    return y && tt__fill_out(who, y, value) ? tt__abandon(y) : y;
}

tt_tensor *tt_zeros_like(const tt_tensor *x) { return make_like("tt_zeros_like", x, 0); }

tt_tensor *tt_ones_like(const tt_tensor *x) { return make_like("tt_ones_like", x, 1); }

tt_tensor *tt_full_like(const tt_tensor *x, double value) { return make_like("tt_full_like", x, value); }

tt_tensor *tt_arange(int64_t n) {
    tt_tensor *x = tt__tensor_new("tt_arange", TT_SHAPE(n), TT_I64);
    int64_t *p = x ? x->data : NULL;
    for (int64_t i = 0; p && i < n; i++)
        p[i] = i;
    return x;
}

tt_tensor *(tt_from_data)(const void *data, tt_shape shape, tt_dtype dtype) {
    if (!data && tt__shape_numel(&shape) > 0)
        return tt__tensor_fail(TT_ERR_INVALID, "tt_from_data: data is NULL");
    tt_tensor *x = tt__tensor_new("tt_from_data", shape, dtype);
    if (x && x->numel)
        memcpy(x->data, data, (size_t)x->numel * tt_dtype_size(dtype));
    return x;
}
