/* LayerNorm, RMSNorm, GroupNorm and the batch norms. */
#include "nn/norm_layers.h"

#include "base/args.h"
#include "base/error.h"
#include "base/text/format.h"
#include "nn/initial.h"
#include "nn/module.h"
#include "tensor/ops/ops.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- without statistics of their own: LayerNorm, RMSNorm, GroupNorm ---- */

typedef struct norm_layer {
    tt_shape shape; /* LayerNorm, RMSNorm: the last dimensions of x */
    int64_t groups; /* GroupNorm */
    double eps;
    tt_tensor *weight, *bias; /* borrowed from the module; NULL: none */
} norm_layer;

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

/* What the constructors of these layers share. */
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
    tt_module *module = tt__layer_new(kind->who, kind->cls, sizeof(norm_layer));
    norm_layer *n = tt_module_user(module);
    tt_status status = TT_OK;
    if (!n)
        return NULL;
    *n = *layer;
    if (kind->weight)
        status = tt__add_filled(module, kind->who, "weight", kind->weights, kind->dtype, 1, &n->weight);
    if (kind->bias && !status)
        status = tt__add_filled(module, kind->who, "bias", kind->weights, kind->dtype, 0, &n->bias);
    return tt__layer_made(module, status);
}

tt_module *tt_nn_layer_norm_with(const tt_nn_layer_norm_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "LayerNorm", .forward = layer_norm_forward, .destroy = tt__layer_destroy);
    tt_nn_layer_norm_args a;
    TT__ARGS_COPY(a, args, size);
    const norm_kind kind = {"tt_nn_layer_norm",         &cls,   a.normalized_shape, !a.no_affine,
                            !a.no_affine && !a.no_bias, a.dtype};
    return norm_new(&kind, &(norm_layer){.shape = a.normalized_shape, .eps = a.eps});
}

tt_module *tt_nn_rms_norm_with(const tt_nn_rms_norm_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "RMSNorm", .forward = rms_norm_forward, .destroy = tt__layer_destroy);
    tt_nn_rms_norm_args a;
    TT__ARGS_COPY(a, args, size);
    const norm_kind kind = {"tt_nn_rms_norm", &cls, a.normalized_shape, !a.no_affine, false, a.dtype};
    return norm_new(&kind, &(norm_layer){.shape = a.normalized_shape, .eps = a.eps});
}

tt_module *tt_nn_group_norm_with(const tt_nn_group_norm_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "GroupNorm", .forward = group_norm_forward, .destroy = tt__layer_destroy);
    tt_nn_group_norm_args a;
    TT__ARGS_COPY(a, args, size);
    const norm_kind kind = {"tt_nn_group_norm", &cls, TT_SHAPE(a.num_channels), !a.no_affine, !a.no_affine, a.dtype};
    if (a.num_groups < 1 || a.num_channels % a.num_groups)
        return tt__fail_null(TT_ERR_INVALID, "tt_nn_group_norm: expected num_groups to divide %lld channels, got %lld",
                             (long long)a.num_channels, (long long)a.num_groups);
    return norm_new(&kind, &(norm_layer){.groups = a.num_groups, .eps = a.eps});
}

/* ---- BatchNorm1d and BatchNorm2d, and the kinds that they may become ---- */

typedef struct batch_norm {
    const char *who;
    const tt__batch_norm_kind *kind; /* or NULL */
    void *kind_user;
    int64_t features;
    int least_dims, most_dims; /* of x */
    double momentum, eps;
    tt_tensor *weight, *bias, *running_mean, *running_var, *batches; /* borrowed from the module; NULL: none */
} batch_norm;

/* Count a batch, wherever the buffer lies. */
static tt_status batch_norm_count(const batch_norm *b) {
    tt_tensor *one = tt__empty_beside(b->who, b->batches, TT_SCALAR, TT_I64);
    tt_status status = one ? tt__fill_out(b->who, one, 1) : tt_last_status();
    if (!status)
        status = tt__add_out(b->who, b->batches, b->batches, one);
    tt__storage_touch(b->batches->storage);
    tt__abandon(one);
    return status;
}

/* Number of dimensions of x, for errors. */
static const char *dims_text(const batch_norm *b) {
    return b->kind ? "at least 2" : b->least_dims == 4 ? "4" : "2 or 3";
}

/* Check x, and count the batch. */
static tt_status batch_norm_begin(const batch_norm *b, const tt_tensor *x, bool counts) {
    int dims = tt_tensor_dim(x);
    if (dims < b->least_dims || dims > b->most_dims)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x of %s dimensions, got x %s", b->who, dims_text(b),
                               TT__DESCRIBE(x)),
               TT_ERR_SHAPE;
    if (b->kind && tt_tensor_size(x, 1) != b->features)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, %lld, ...), got x %s", b->who, (long long)b->features,
                               TT__DESCRIBE(x)),
               TT_ERR_SHAPE;
    return counts && b->batches ? batch_norm_count(b) : TT_OK;
}

tt_tensor *tt__batch_norm_forward(tt_module *self, tt_tensor *x) {
    const batch_norm *b = tt_module_user(self);
    bool training = tt_module_training(self);
    /* of several replicas only one keeps statistics */
    const bool keeps = !training || tt__replica_of_thread().index == 0;
    if (batch_norm_begin(b, x, training && keeps)) {
        if (training && b->kind)
            b->kind->refused(b->kind_user, b->features);
        return NULL;
    }
    const tt_batch_norm_args args = {.x = x,
                                     .running_mean = keeps ? b->running_mean : NULL,
                                     .running_var = keeps ? b->running_var : NULL,
                                     .weight = b->weight,
                                     .bias = b->bias,
                                     .training = training || !b->running_mean,
                                     .momentum = b->momentum,
                                     .eps = b->eps};
    return training && b->kind ? b->kind->normalise(b->kind_user, &args)
                               : tt_batch_norm_with(&args, offsetof(tt_batch_norm_args, tt_end));
}

static void release_kind(const batch_norm *b) {
    if (b->kind)
        b->kind->release(b->kind_user);
}

void tt__batch_norm_destroy(tt_module *self) {
    release_kind(tt_module_user(self));
    free(tt_module_user(self));
}

static const tt_module_class batch_norm1d_class = TT__BATCH_NORM_CLASS("BatchNorm1d");
static const tt_module_class batch_norm2d_class = TT__BATCH_NORM_CLASS("BatchNorm2d");

int64_t tt__batch_norm_features(const tt_module *module) {
    const batch_norm *b = tt_module_user(module);
    return b->features;
}

bool tt__is_batch_norm(const tt_module *module) { return module->cls.destroy == tt__batch_norm_destroy; }

const char *tt__batch_norm_text(const tt_module *module, char text[96]) {
    const batch_norm *b = tt_module_user(module);
    tt__format(text, 96, "of %lld features, eps %g, momentum %g%s%s", (long long)b->features, b->eps ? b->eps : 1e-5,
               b->momentum ? b->momentum : 0.1, b->weight ? "" : ", not affine",
               b->running_mean ? "" : ", no running statistics");
    return text;
}

void tt__batch_norm_become(tt_module *module, const tt__batch_norm_kind *kind, void *user) {
    batch_norm *b = tt_module_user(module);
    release_kind(b);
    b->who = kind->cls->name;
    b->least_dims = 2;
    b->most_dims = TT_MAX_DIMS;
    b->kind = kind;
    b->kind_user = user;
    module->cls = *kind->cls;
    module->identity = kind->cls;
}

static tt_status batch_norm_add(tt_module *module, batch_norm *b, const tt_nn_batch_norm2d_args *a) {
    tt_shape shape = TT_SHAPE(a->num_features);
    if (!a->no_affine) {
        TT__TRY(tt__add_filled(module, b->who, "weight", shape, a->dtype, 1, &b->weight));
        TT__TRY(tt__add_filled(module, b->who, "bias", shape, a->dtype, 0, &b->bias));
    }
    if (a->no_running_stats)
        return TT_OK;
    TT__TRY(tt__add_buffer(module, b->who, "running_mean", shape, a->dtype, 0, &b->running_mean));
    TT__TRY(tt__add_buffer(module, b->who, "running_var", shape, a->dtype, 1, &b->running_var));
    return tt__add_buffer(module, b->who, "num_batches_tracked", TT_SCALAR, TT_I64, 0, &b->batches);
}

static tt_module *batch_norm_new(const tt_module_class *cls, const batch_norm *kind,
                                 const tt_nn_batch_norm2d_args *args, size_t size) {
    tt_nn_batch_norm2d_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.num_features < 1 || !(a.momentum >= 0) || !(a.eps >= 0))
        return tt__fail_null(
            TT_ERR_INVALID, "%s: expected num_features of at least 1, momentum and eps of at least 0, got %lld, %g, %g",
            kind->who, (long long)a.num_features, a.momentum, a.eps);
    if (tt__layer_dtype_check(kind->who, a.dtype))
        return NULL;
    tt_module *module = tt__layer_new(kind->who, cls, sizeof(batch_norm));
    batch_norm *b = tt_module_user(module);
    if (!b)
        return NULL;
    *b = *kind;
    b->momentum = a.momentum;
    b->eps = a.eps;
    b->features = a.num_features;
    return tt__layer_made(module, batch_norm_add(module, b, &a));
}

tt_module *tt_nn_batch_norm1d_with(const tt_nn_batch_norm2d_args *args, size_t size) {
    const batch_norm kind = {.who = "tt_nn_batch_norm1d", .least_dims = 2, .most_dims = 3};
    return batch_norm_new(&batch_norm1d_class, &kind, args, size);
}

tt_module *tt_nn_batch_norm2d_with(const tt_nn_batch_norm2d_args *args, size_t size) {
    const batch_norm kind = {.who = "tt_nn_batch_norm2d", .least_dims = 4, .most_dims = 4};
    return batch_norm_new(&batch_norm2d_class, &kind, args, size);
}
