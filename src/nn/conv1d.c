#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"

static const char who[] = "tt_nn_conv1d";

/* x is set by each forward; weight and bias are borrowed from the module. */
static tt_tensor *conv1d_module_forward(tt_module *self, tt_tensor *x) {
    tt_conv1d_args call = *(const tt_conv1d_args *)tt_module_user(self);
    call.x = x;
    return tt_conv1d_with(&call, offsetof(tt_conv1d_args, tt_end));
}

static const tt_module_class conv1d_class =
    TT_MODULE_CLASS(.name = "Conv1d", .forward = conv1d_module_forward, .destroy = tt__layer_destroy);

tt_module *tt_nn_conv1d_with(const tt_nn_conv1d_args *args, size_t size) {
    tt_nn_conv1d_args a;
    TT__ARGS_COPY(a, args, size);
    const int64_t groups = a.groups ? a.groups : 1, kernel[] = {a.kernel_size, a.kernel_size};
    if (tt__channels_check(who, a.in_channels, a.out_channels, kernel, groups) || tt__layer_dtype_check(who, a.dtype))
        return NULL;
    tt_module *module = tt__layer_new(who, &conv1d_class, sizeof(tt_conv1d_args));
    tt_conv1d_args *call = tt_module_user(module);
    if (!call)
        return NULL;
    call->stride = a.stride;
    call->padding = a.padding;
    call->dilation = a.dilation;
    call->groups = groups;
    int64_t channels = a.in_channels / groups;
    const tt__drawing drawing = {who, a.generator, a.dtype};
    return tt__layer_made(module, tt__add_weight_and_bias(module, TT_SHAPE(a.out_channels, channels, a.kernel_size),
                                                          (double)channels * (double)a.kernel_size,
                                                          a.no_bias ? 0 : a.out_channels, &drawing, &call->weight,
                                                          &call->bias));
}
