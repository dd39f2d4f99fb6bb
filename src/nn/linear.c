/* Linear: a product with a weight, and a bias. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"

typedef struct linear {
    tt_tensor *weight, *bias; /* borrowed from the module */
} linear;

static tt_tensor *linear_module_forward(tt_module *self, tt_tensor *x) {
    const linear *l = tt_module_user(self);
    return tt_linear(x, l->weight, l->bias);
}

static const tt_module_class linear_class =
    TT_MODULE_CLASS(.name = "Linear", .forward = linear_module_forward, .destroy = tt__layer_destroy);

/* A size of 0 may come of an object that could not be made: the error before says why. */
static tt_status linear_sizes_check(const tt_nn_linear_args *a) {
    char earlier[TT__ERROR_TEXT_SIZE] = "";
    if (a->in_features >= 1 && a->out_features >= 1)
        return tt__layer_dtype_check("tt_nn_linear", a->dtype);
    if (a->in_features == 0 || a->out_features == 0)
        tt__error_quote(earlier, sizeof earlier);
    return tt__fail(TT_ERR_INVALID,
                    "tt_nn_linear: expected sizes of at least 1, got in_features %lld, out_features %lld%s",
                    (long long)a->in_features, (long long)a->out_features, earlier);
}

tt_module *tt_nn_linear_with(const tt_nn_linear_args *args, size_t size) {
    tt_nn_linear_args a;
    TT__ARGS_COPY(a, args, size);
    if (linear_sizes_check(&a))
        return NULL;
    tt_module *module = tt__layer_new("tt_nn_linear", &linear_class, sizeof(linear));
    linear *l = tt_module_user(module);
    if (!l)
        return NULL;
    const tt__drawing drawing = {"tt_nn_linear", a.generator, a.dtype};
    return tt__layer_made(module, tt__add_weight_and_bias(module, TT_SHAPE(a.out_features, a.in_features),
                                                          (double)a.in_features, a.no_bias ? 0 : a.out_features,
                                                          &drawing, &l->weight, &l->bias));
}
