#include "nn/initial.h"

#include "base/error.h"
#include "tensor/ops.h"

#include <math.h>

tt_status tt__layer_dtype_check(const char *who, tt_dtype dtype) {
    if (dtype == TT_F32 || dtype == TT_F64)
        return TT_OK;
    return tt__fail(TT_ERR_DTYPE, "%s: expected dtype f32 or f64, got %s; tt_module_to() converts", who,
                    tt_dtype_name(dtype));
}

/* Make a parameter, drawn from U(-bound, bound), and register it; NULL on failure. */
static tt_tensor *add_drawn(tt_module *module, const char *name, tt_shape shape, double bound,
                            const tt__drawing *drawing) {
    tt_tensor *x = tt__tensor_new(drawing->who, shape, drawing->dtype);
    if (!x)
        return NULL;
    if (tt_uniform_(x, -bound, bound, drawing->generator) || tt_module_register_parameter(module, name, x)) {
        if (x->owner == TT__OWNER_CALLER)
            tt_tensor_free(x);
        return NULL;
    }
    return x;
}

/* Return the bound of PyTorch's weights, in its steps: kaiming_uniform_(a = sqrt(5)). It is 1 / sqrt(fan_in) except for
 * the rounding, which matters in f64. */
static double weight_bound(double fan_in) {
    double a = sqrt(5), gain = sqrt(2 / (1 + a * a));
    return sqrt(3) * (gain / sqrt(fan_in));
}

tt_status tt__add_weight_and_bias(tt_module *module, tt_shape shape, double fan_in, int64_t outputs,
                                  const tt__drawing *drawing, tt_tensor **weight, tt_tensor **bias) {
    *bias = NULL;
    *weight = add_drawn(module, "weight", shape, weight_bound(fan_in), drawing);
    if (!*weight)
        return tt_last_status();
    if (outputs)
        *bias = add_drawn(module, "bias", TT_SHAPE(outputs), 1 / sqrt(fan_in), drawing);
    return outputs && !*bias ? tt_last_status() : TT_OK;
}

/* Give x, filled with a value, to `add`; it is freed where that fails. */
static tt_status add_full(tt_module *module, const char *who, const char *name, tt_tensor *x, double value,
                          bool is_buffer) {
    tt_status status = x ? tt__fill_out(who, x, value) : tt_last_status();
    if (!status)
        status = is_buffer ? tt_module_register_buffer(module, name, x) : tt_module_register_parameter(module, name, x);
    if (status && x && x->owner == TT__OWNER_CALLER)
        tt_tensor_free(x);
    return status;
}

tt_status tt__add_filled(tt_module *module, const char *who, const char *name, tt_shape shape, tt_dtype dtype,
                         double value, tt_tensor **made) {
    *made = tt__tensor_new(who, shape, dtype);
    return add_full(module, who, name, *made, value, false);
}

tt_status tt__add_buffer(tt_module *module, const char *who, const char *name, tt_shape shape, tt_dtype dtype,
                         double value, tt_tensor **made) {
    *made = tt__tensor_new(who, shape, dtype);
    return add_full(module, who, name, *made, value, true);
}
