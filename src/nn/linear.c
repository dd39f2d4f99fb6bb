#include "base/args.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <tutti/nn.h>

#include <math.h>
#include <stdlib.h>

typedef struct linear {
    tt_tensor *weight, *bias; /* borrowed from the module */
} linear;

static tt_tensor *linear_module_forward(tt_module *self, tt_tensor *x) {
    const linear *l = tt_module_user(self);
    return tt_linear(x, l->weight, l->bias);
}

static void linear_destroy(tt_module *self) { free(tt_module_user(self)); }

static const tt_module_class linear_class =
    TT_MODULE_CLASS(.name = "Linear", .forward = linear_module_forward, .destroy = linear_destroy);

/* Make a parameter of the given shape, drawn and registered; NULL on failure. */
static tt_tensor *add_drawn(tt_module *module, const char *name, tt_shape shape, double bound,
                            const tt_nn_linear_args *a) {
    tt_tensor *x = tt__tensor_new("tt_nn_linear", shape, a->dtype);
    if (!x)
        return NULL;
    if (tt_uniform_(x, -bound, bound, a->generator) || tt_module_register_parameter(module, name, x)) {
        if (x->owner == TT__OWNER_CALLER)
            tt_tensor_free(x);
        return NULL;
    }
    return x;
}

/* Return the bound of torch.nn.Linear's weights, in its steps: kaiming_uniform_(a = sqrt(5)). It is 1 / sqrt(in) except
 * for the rounding, which matters in f64. */
static double weight_bound(double in_features) {
    double a = sqrt(5), gain = sqrt(2 / (1 + a * a));
    return sqrt(3) * (gain / sqrt(in_features));
}

static tt_status linear_sizes_check(const tt_nn_linear_args *a) {
    if (a->in_features < 1 || a->out_features < 1)
        return tt__fail(TT_ERR_INVALID,
                        "tt_nn_linear: expected sizes of at least 1, got in_features %lld, out_features %lld",
                        (long long)a->in_features, (long long)a->out_features);
    if (a->dtype != TT_F32 && a->dtype != TT_F64)
        return tt__fail(TT_ERR_DTYPE, "tt_nn_linear: expected dtype f32 or f64, got %s; tt_module_to() converts",
                        tt_dtype_name(a->dtype));
    return TT_OK;
}

tt_module *tt_nn_linear_with(const tt_nn_linear_args *args, size_t size) {
    tt_nn_linear_args a;
    TT__ARGS_COPY(a, args, size);
    if (linear_sizes_check(&a))
        return NULL;
    linear *l = calloc(1, sizeof *l);
    tt_module *module = l ? tt_module_new(&linear_class, l) : NULL;
    if (!module) {
        free(l);
        return tt__fail_null(TT_ERR_MEMORY, "tt_nn_linear: no memory for a module");
    }
    double in = (double)a.in_features;
    l->weight = add_drawn(module, "weight", TT_SHAPE(a.out_features, a.in_features), weight_bound(in), &a);
    if (l->weight && !a.no_bias)
        l->bias = add_drawn(module, "bias", TT_SHAPE(a.out_features), 1 / sqrt(in), &a);
    if (!l->weight || (!l->bias && !a.no_bias)) {
        tt_module_free(module);
        return NULL;
    }
    return module;
}
