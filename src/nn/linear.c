#include "base/args.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <tutti/nn.h>

#include <math.h>
#include <stdlib.h>

typedef struct linear {
    tt_tensor *weight, *bias; /* borrowed from the module */
} linear;

static tt_tensor *forward(tt_module *self, tt_tensor *x) {
    const linear *l = tt_module_user(self);
    return tt_linear(x, l->weight, l->bias);
}

static void destroy(tt_module *self) { free(tt_module_user(self)); }

static const tt_module_class linear_class = {.name = "Linear", .forward = forward, .destroy = destroy};

/* A parameter with the given shape, drawn and registered; NULL on failure. */
static tt_tensor *add_drawn(tt_module *module, const char *name, tt_shape shape, double bound,
                            tt_generator *generator) {
    tt_tensor *x = tt__tensor_new("tt_nn_linear", shape, TT_F32);
    if (!x)
        return NULL;
    if (tt_uniform_(x, -bound, bound, generator) || tt_module_register_parameter(module, name, x)) {
        if (x->owner == TT__OWNER_CALLER)
            tt_tensor_free(x);
        return NULL;
    }
    return x;
}

tt_module *tt_nn_linear_with(const tt_nn_linear_args *args, size_t size) {
    tt_nn_linear_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.in_features < 1 || a.out_features < 1)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_nn_linear: expected sizes of at least 1, got in_features %lld, out_features %lld",
                             (long long)a.in_features, (long long)a.out_features);
    linear *l = calloc(1, sizeof *l);
    tt_module *module = l ? tt_module_new(&linear_class, l) : NULL;
    if (!module) {
        free(l);
        return tt__fail_null(TT_ERR_MEMORY, "tt_nn_linear: no memory for a module");
    }
    double bound = 1 / sqrt((double)a.in_features);
    l->weight = add_drawn(module, "weight", TT_SHAPE(a.out_features, a.in_features), bound, a.generator);
    if (l->weight && !a.no_bias)
        l->bias = add_drawn(module, "bias", TT_SHAPE(a.out_features), bound, a.generator);
    if (!l->weight || (!l->bias && !a.no_bias)) {
        tt_module_free(module);
        return NULL;
    }
    return module;
}
