/* Layers that normalise without statistics of their own: LayerNorm, RMSNorm, GroupNorm. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"

#include <stdlib.h>

typedef struct norm_layer {
    tt_shape shape; /* LayerNorm, RMSNorm: the last dimensions of x */
    int64_t groups; /* GroupNorm */
    double eps;
    tt_tensor *weight, *bias; /* borrowed from the module; NULL: none */
} norm_layer;

static void norm_destroy(tt_module *self) { free(tt_module_user(self)); }

static tt_tensor *layer_norm_forward(tt_module *self, tt_tensor *x) {
    const norm_layer *n = tt_module_user(self);
    return tt_layer_norm(x, n->shape, .weight = n->weight, .bias = n->bias, .eps = n->eps);
}

static tt_tensor *rms_norm_forward(tt_module *self, tt_tensor *x) {
    const norm_layer *n = tt_module_user(self);
    return tt_rms_norm(x, n->shape, .weight = n->weight, .eps = n->eps);
}

static tt_tensor *group_norm_forward(tt_module *self, tt_tensor *x) {
    const norm_layer *n = tt_module_user(self);
    return tt_group_norm(x, n->groups, .weight = n->weight, .bias = n->bias, .eps = n->eps);
}

/* What the layers have in common when they are made. */
typedef struct norm_kind {
    const char *who;
    const tt_module_class *cls;
    tt_shape weights;
    bool weight, bias;
    tt_dtype dtype;
} norm_kind;

static bool norm_shape_check(const norm_kind *kind, double eps) {
    bool good = kind->weights.ndim >= 1 && kind->weights.ndim <= TT_MAX_DIMS && eps >= 0;
    for (int d = 0; good && d < kind->weights.ndim; d++)
        good = kind->weights.dim[d] >= 1;
    if (!good)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected sizes of at least 1 and eps of at least 0, got %s and %g",
                        kind->who, TT__SHAPE_TEXT(&kind->weights), eps);
    return good && !tt__layer_dtype_check(kind->who, kind->dtype);
}

static tt_module *norm_new(const norm_kind *kind, const norm_layer *layer) {
    if (!norm_shape_check(kind, layer->eps))
        return NULL;
    norm_layer *n = malloc(sizeof *n);
    tt_module *module = n ? tt__module_new(kind->cls, n) : NULL;
    if (!module) {
        free(n);
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a module", kind->who);
    }
    *n = *layer;
    if ((kind->weight && tt__add_filled(module, kind->who, "weight", kind->weights, kind->dtype, 1, &n->weight)) ||
        (kind->bias && tt__add_filled(module, kind->who, "bias", kind->weights, kind->dtype, 0, &n->bias))) {
        tt_module_free(module);
        return NULL;
    }
    return module;
}

tt_module *tt_nn_layer_norm_with(const tt_nn_layer_norm_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "LayerNorm", .forward = layer_norm_forward, .destroy = norm_destroy);
    tt_nn_layer_norm_args a;
    TT__ARGS_COPY(a, args, size);
    const norm_kind kind = {"tt_nn_layer_norm",         &cls,   a.normalized_shape, !a.no_affine,
                            !a.no_affine && !a.no_bias, a.dtype};
    return norm_new(&kind, &(norm_layer){.shape = a.normalized_shape, .eps = a.eps});
}

tt_module *tt_nn_rms_norm_with(const tt_nn_rms_norm_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "RMSNorm", .forward = rms_norm_forward, .destroy = norm_destroy);
    tt_nn_rms_norm_args a;
    TT__ARGS_COPY(a, args, size);
    const norm_kind kind = {"tt_nn_rms_norm", &cls, a.normalized_shape, !a.no_affine, false, a.dtype};
    return norm_new(&kind, &(norm_layer){.shape = a.normalized_shape, .eps = a.eps});
}

tt_module *tt_nn_group_norm_with(const tt_nn_group_norm_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "GroupNorm", .forward = group_norm_forward, .destroy = norm_destroy);
    tt_nn_group_norm_args a;
    TT__ARGS_COPY(a, args, size);
    const norm_kind kind = {"tt_nn_group_norm", &cls, TT_SHAPE(a.num_channels), !a.no_affine, !a.no_affine, a.dtype};
    if (a.num_groups < 1 || a.num_channels % a.num_groups)
        return tt__fail_null(TT_ERR_INVALID, "tt_nn_group_norm: expected num_groups to divide %lld channels, got %lld",
                             (long long)a.num_channels, (long long)a.num_groups);
    return norm_new(&kind, &(norm_layer){.groups = a.num_groups, .eps = a.eps});
}
