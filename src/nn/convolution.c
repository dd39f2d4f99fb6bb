/* Conv1d, Conv2d, ConvTranspose2d. Constructors don't check what the operators check in each call. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"

static const char nn_conv2d_name[] = "tt_nn_conv2d";

/* A module keeps the arguments of its operator: x is set by each forward; weight and bias are borrowed from the
 * module. */
static tt_tensor *conv2d_module_forward(tt_module *self, tt_tensor *x) {
    tt_conv2d_args call = *(const tt_conv2d_args *)tt_module_user(self);
    call.x = x;
    return tt_conv2d_with(&call, offsetof(tt_conv2d_args, tt_end));
}

static const tt_module_class conv2d_class =
    TT_MODULE_CLASS(.name = "Conv2d", .forward = conv2d_module_forward, .destroy = tt__layer_destroy);

/* Set the kernel's sizes. */
static tt_status conv2d_sizes_check(const tt_nn_conv2d_args *a, int64_t *kernel) {
    bool two = a->kernel_size_hw[0] != 0 || a->kernel_size_hw[1] != 0;
    int64_t groups = a->groups ? a->groups : 1;
    for (int d = 0; d < 2; d++)
        kernel[d] = two ? a->kernel_size_hw[d] : a->kernel_size;
    if (two && a->kernel_size)
        return tt__fail(TT_ERR_INVALID, "%s: expected kernel_size 0 beside .kernel_size_hw, got %lld", nn_conv2d_name,
                        (long long)a->kernel_size);
    TT__TRY(tt__channels_check(nn_conv2d_name, a->in_channels, a->out_channels, kernel, groups));
    return tt__layer_dtype_check(nn_conv2d_name, a->dtype);
}

static void conv2d_take_options(tt_conv2d_args *call, const tt_nn_conv2d_args *a) {
    call->stride = a->stride;
    call->padding = a->padding;
    call->dilation = a->dilation;
    call->groups = a->groups;
    for (int d = 0; d < 2; d++) {
        call->stride_hw[d] = a->stride_hw[d];
        call->padding_hw[d] = a->padding_hw[d];
        call->dilation_hw[d] = a->dilation_hw[d];
    }
}

tt_module *tt_nn_conv2d_with(const tt_nn_conv2d_args *args, size_t size) {
    tt_nn_conv2d_args a;
    int64_t kernel[2];
    TT__ARGS_COPY(a, args, size);
    if (conv2d_sizes_check(&a, kernel))
        return NULL;
    tt_module *module = tt__layer_new(nn_conv2d_name, &conv2d_class, sizeof(tt_conv2d_args));
    tt_conv2d_args *call = tt_module_user(module);
    if (!call)
        return NULL;
    conv2d_take_options(call, &a);
    int64_t channels = a.in_channels / (a.groups ? a.groups : 1);
    const tt__drawing drawing = {nn_conv2d_name, a.generator, a.dtype};
    return tt__layer_made(
        module, tt__add_weight_and_bias(module, TT_SHAPE(a.out_channels, channels, kernel[0], kernel[1]),
                                        (double)channels * (double)kernel[0] * (double)kernel[1],
                                        a.no_bias ? 0 : a.out_channels, &drawing, &call->weight, &call->bias));
}

static const char nn_conv1d_name[] = "tt_nn_conv1d";

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
    if (tt__channels_check(nn_conv1d_name, a.in_channels, a.out_channels, kernel, groups) ||
        tt__layer_dtype_check(nn_conv1d_name, a.dtype))
        return NULL;
    tt_module *module = tt__layer_new(nn_conv1d_name, &conv1d_class, sizeof(tt_conv1d_args));
    tt_conv1d_args *call = tt_module_user(module);
    if (!call)
        return NULL;
    call->stride = a.stride;
    call->padding = a.padding;
    call->dilation = a.dilation;
    call->groups = groups;
    int64_t channels = a.in_channels / groups;
    const tt__drawing drawing = {nn_conv1d_name, a.generator, a.dtype};
    return tt__layer_made(module, tt__add_weight_and_bias(module, TT_SHAPE(a.out_channels, channels, a.kernel_size),
                                                          (double)channels * (double)a.kernel_size,
                                                          a.no_bias ? 0 : a.out_channels, &drawing, &call->weight,
                                                          &call->bias));
}

static const char transposed_name[] = "tt_nn_conv_transpose2d";

static tt_tensor *transposed_forward(tt_module *self, tt_tensor *x) {
    tt_conv_transpose2d_args call = *(const tt_conv_transpose2d_args *)tt_module_user(self);
    call.x = x;
    return tt_conv_transpose2d_with(&call, offsetof(tt_conv_transpose2d_args, tt_end));
}

static const tt_module_class transposed_class =
    TT_MODULE_CLASS(.name = "ConvTranspose2d", .forward = transposed_forward, .destroy = tt__layer_destroy);

tt_module *tt_nn_conv_transpose2d_with(const tt_nn_conv_transpose2d_args *args, size_t size) {
    tt_nn_conv_transpose2d_args a;
    TT__ARGS_COPY(a, args, size);
    const int64_t groups = a.groups ? a.groups : 1, kernel[] = {a.kernel_size, a.kernel_size};
    if (tt__channels_check(transposed_name, a.in_channels, a.out_channels, kernel, groups) ||
        tt__layer_dtype_check(transposed_name, a.dtype))
        return NULL;
    tt_module *module = tt__layer_new(transposed_name, &transposed_class, sizeof(tt_conv_transpose2d_args));
    tt_conv_transpose2d_args *call = tt_module_user(module);
    if (!call)
        return NULL;
    call->stride = a.stride;
    call->padding = a.padding;
    call->output_padding = a.output_padding;
    call->dilation = a.dilation;
    call->groups = groups;
    int64_t outputs = a.out_channels / groups, k = a.kernel_size;
    const tt__drawing drawing = {transposed_name, a.generator, a.dtype};
    return tt__layer_made(module, tt__add_weight_and_bias(module, TT_SHAPE(a.in_channels, outputs, k, k),
                                                          (double)outputs * (double)k * (double)k,
                                                          a.no_bias ? 0 : a.out_channels, &drawing, &call->weight,
                                                          &call->bias));
}
