#include "nn/initial.h"

#include "base/error.h"
#include "nn/module.h"
#include "tensor/ops/ops.h"

#include <math.h>
#include <stdlib.h>

tt_module *tt__layer_new(const char *who, const tt_module_class *cls, size_t user_bytes) {
    void *user = calloc(1, user_bytes);
    tt_module *module = user ? tt__module_new(cls, user) : NULL;
    if (module)
        return module;
    free(user);
    return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a module", who);
}

void tt__layer_destroy(tt_module *self) { free(tt_module_user(self)); }

tt_module *tt__layer_made(tt_module *module, tt_status status) {
    if (!status)
        return module;
    tt_module_free(module);
    return NULL;
}

tt_status tt__layer_dtype_check(const char *who, tt_dtype dtype) {
    if (dtype == TT_F32 || dtype == TT_F64)
        return TT_OK;
    return tt__fail(TT_ERR_DTYPE, "%s: expected dtype f32 or f64, got %s; tt_module_to() converts", who,
                    tt_dtype_name(dtype));
}

tt_status tt__channels_check(const char *who, int64_t in, int64_t out, const int64_t *kernel, int64_t groups) {
    if (in < 1 || out < 1 || kernel[0] < 1 || kernel[1] < 1)
        return tt__fail(
            TT_ERR_INVALID,
            "%s: expected sizes of at least 1, got in_channels %lld, out_channels %lld, kernel (%lld, %lld)", who,
            (long long)in, (long long)out, (long long)kernel[0], (long long)kernel[1]);
    if (groups < 1 || in % groups || out % groups)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected groups to divide in_channels %lld and out_channels %lld, got %lld", who,
                        (long long)in, (long long)out, (long long)groups);
    return TT_OK;
}

tt_status tt__check_layer_input(const tt_module *module, const char *name, const tt_tensor *x,
                                const tt_tensor *weight) {
    const char *who = tt_module_class_name(module);
    if (x->dtype != weight->dtype)
        return TT__FORWARD_FAIL(TT_ERR_DTYPE, "forward: a %s of %s parameters expected %s of that type, got %s", who,
                                tt_dtype_name(weight->dtype), name, TT__DESCRIBE(x));
    if (tt__device_of(x) != tt__device_of(weight))
        return TT__FORWARD_FAIL(TT_ERR_INVALID,
                                "forward: a %s on the device \"%s\" expected %s there, got %s on \"%s\"", who,
                                tt__device_of(weight)->name, name, TT__DESCRIBE(x), tt__device_of(x)->name);
    return TT_OK;
}

tt_status tt__add_made(tt_module *module, const char *name, tt_tensor *x, tt_status status) {
    if (!status)
        status = tt_module_register_parameter(module, name, x);
    if (status && x && x->owner == TT__OWNER_CALLER)
        tt_tensor_free(x);
    return status;
}

tt_tensor *tt__add_drawn(tt_module *module, const char *name, tt_shape shape, double bound,
                         const tt__drawing *drawing) {
    tt_tensor *x = tt__tensor_new(drawing->who, shape, drawing->dtype);
    tt_status status = x ? tt_uniform_(x, -bound, bound, drawing->generator) : tt_last_status();
    return tt__add_made(module, name, x, status) ? NULL : x;
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
    *weight = tt__add_drawn(module, "weight", shape, weight_bound(fan_in), drawing);
    if (!*weight)
        return tt_last_status();
    if (outputs)
        *bias = tt__add_drawn(module, "bias", TT_SHAPE(outputs), 1 / sqrt(fan_in), drawing);
    return outputs && !*bias ? tt_last_status() : TT_OK;
}

/* Fill x with a value, and register it as a parameter or a buffer; on failure x is freed. */
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
