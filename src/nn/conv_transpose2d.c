#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"

#include <stdlib.h>

static const char who[] = "tt_nn_conv_transpose2d";

/* x is set by each forward; weight and bias are borrowed from the module. */
static tt_tensor *transposed_forward(tt_module *self, tt_tensor *x) {
    tt_conv_transpose2d_args call = *(const tt_conv_transpose2d_args *)tt_module_user(self);
    call.x = x;
    return tt_conv_transpose2d_with(&call, offsetof(tt_conv_transpose2d_args, tt_end));
}

static void transposed_destroy(tt_module *self) { free(tt_module_user(self)); }

static const tt_module_class transposed_class =
    TT_MODULE_CLASS(.name = "ConvTranspose2d", .forward = transposed_forward, .destroy = transposed_destroy);

static tt_status transposed_sizes_check(const tt_nn_conv_transpose2d_args *a, int64_t groups) {
    if (a->in_channels < 1 || a->out_channels < 1 || a->kernel_size < 1)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected sizes of at least 1, got in_channels %lld, out_channels %lld, kernel_size %lld",
                        who, (long long)a->in_channels, (long long)a->out_channels, (long long)a->kernel_size);
    if (groups < 1 || a->in_channels % groups || a->out_channels % groups)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected groups to divide in_channels %lld and out_channels %lld, got %lld", who,
                        (long long)a->in_channels, (long long)a->out_channels, (long long)groups);
    return tt__layer_dtype_check(who, a->dtype);
}

tt_module *tt_nn_conv_transpose2d_with(const tt_nn_conv_transpose2d_args *args, size_t size) {
    tt_nn_conv_transpose2d_args a;
    TT__ARGS_COPY(a, args, size);
    int64_t groups = a.groups ? a.groups : 1;
    if (transposed_sizes_check(&a, groups))
        return NULL;
    tt_conv_transpose2d_args *call = calloc(1, sizeof *call);
    tt_module *module = call ? tt_module_new(&transposed_class, call) : NULL;
    if (!module) {
        free(call);
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a module", who);
    }
    call->stride = a.stride;
    call->padding = a.padding;
    call->output_padding = a.output_padding;
    call->dilation = a.dilation;
    call->groups = groups;
    int64_t outputs = a.out_channels / groups, k = a.kernel_size;
    const tt__drawing drawing = {who, a.generator, a.dtype};
    if (tt__add_weight_and_bias(module, TT_SHAPE(a.in_channels, outputs, k, k), (double)outputs * (double)k * (double)k,
                                a.no_bias ? 0 : a.out_channels, &drawing, &call->weight, &call->bias)) {
        tt_module_free(module);
        return NULL;
    }
    return module;
}
