/* Modules without parameters, of one operator each: activations, dropout, flatten, pooling. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"

#include <tutti/nn.h>

#include <stdlib.h>
#include <string.h>

#define WITHOUT_NUMBER(called, pytorch, ...)                                                                       \
    static tt_tensor *called##_module_forward(tt_module *self, tt_tensor *x) {                                     \
        (void)self;                                                                                                \
        return __VA_ARGS__;                                                                                        \
    }                                                                                                              \
    tt_module *tt_nn_##called(void) {                                                                              \
        static const tt_module_class cls = TT_MODULE_CLASS(.name = (pytorch), .forward = called##_module_forward); \
        return tt__module_new(&cls, NULL);                                                                         \
    }

WITHOUT_NUMBER(relu, "ReLU", tt_relu(x))
WITHOUT_NUMBER(flatten, "Flatten", tt_flatten(x, 1))
WITHOUT_NUMBER(identity, "Identity", x)
WITHOUT_NUMBER(sigmoid, "Sigmoid", tt_sigmoid(x))
WITHOUT_NUMBER(tanh, "Tanh", tt_tanh(x))
WITHOUT_NUMBER(silu, "SiLU", tt_silu(x))
WITHOUT_NUMBER(gelu, "GELU", tt_gelu(x))
WITHOUT_NUMBER(gelu_tanh, "GELU", tt_gelu(x, .tanh = true))

/* ---- with a number, which the module owns ---- */

static double number_of(const tt_module *self) { return *(const double *)tt_module_user(self); }

static tt_module *module_with_number(const char *who, const tt_module_class *cls, double number) {
    double *own = malloc(sizeof *own);
    if (!own)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a module", who);
    *own = number;
    tt_module *module = tt__module_new(cls, own);
    if (!module)
        free(own);
    return module;
}

#define WITH_NUMBER(called, pytorch)              \
    static const tt_module_class called##_class = \
        TT_MODULE_CLASS(.name = (pytorch), .forward = called##_module_forward, .destroy = tt__layer_destroy)

static tt_tensor *leaky_relu_module_forward(tt_module *self, tt_tensor *x) { return tt_leaky_relu(x, number_of(self)); }

static tt_tensor *softmax_module_forward(tt_module *self, tt_tensor *x) { return tt_softmax(x, (int)number_of(self)); }

static tt_tensor *log_softmax_module_forward(tt_module *self, tt_tensor *x) {
    return tt_log_softmax(x, (int)number_of(self));
}

static tt_tensor *dropout_module_forward(tt_module *self, tt_tensor *x) {
    return tt_dropout(x, number_of(self), tt_module_training(self));
}

WITH_NUMBER(leaky_relu, "LeakyReLU");
WITH_NUMBER(softmax, "Softmax");
WITH_NUMBER(log_softmax, "LogSoftmax");
WITH_NUMBER(dropout, "Dropout");

tt_module *tt_nn_leaky_relu(double negative_slope) {
    return module_with_number("tt_nn_leaky_relu", &leaky_relu_class, negative_slope);
}

tt_module *tt_nn_softmax(int dim) { return module_with_number("tt_nn_softmax", &softmax_class, dim); }

tt_module *tt_nn_log_softmax(int dim) { return module_with_number("tt_nn_log_softmax", &log_softmax_class, dim); }

tt_module *tt_nn_dropout(double p) {
    if (!(p >= 0 && p <= 1))
        return tt__fail_null(TT_ERR_INVALID, "tt_nn_dropout: expected a probability p in 0..1, got %g", p);
    return module_with_number("tt_nn_dropout", &dropout_class, p);
}

/* ---- pooling: a module keeps the arguments of its operator ---- */

/* Make a module of this class that keeps a copy of `call`. The kernel's size is checked here, as PyTorch's callers
 * expect; the rest by the operator. */
static tt_module *pooling_new(const tt_module_class *cls, const char *who, const void *call, size_t size,
                              int64_t kernel_size, const int64_t *kernel_size_hw) {
    if (kernel_size < 0 || kernel_size_hw[0] < 0 || kernel_size_hw[1] < 0 ||
        (kernel_size == 0) == (kernel_size_hw[0] == 0 && kernel_size_hw[1] == 0))
        return tt__fail_null(TT_ERR_INVALID,
                             "%s: expected kernel_size or .kernel_size_hw of at least 1, got %lld and (%lld, %lld)",
                             who, (long long)kernel_size, (long long)kernel_size_hw[0], (long long)kernel_size_hw[1]);
    tt_module *module = tt__layer_new(who, cls, size);
    if (module)
        memcpy(tt_module_user(module), call, size);
    return module;
}

/* ---- the largest */

static tt_tensor *max_pool2d_forward(tt_module *self, tt_tensor *x) {
    tt_max_pool2d_args call = *(const tt_max_pool2d_args *)tt_module_user(self);
    call.x = x;
    return tt_max_pool2d_with(&call, offsetof(tt_max_pool2d_args, tt_end));
}

tt_module *tt_nn_max_pool2d_with(const tt_nn_max_pool2d_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "MaxPool2d", .forward = max_pool2d_forward, .destroy = tt__layer_destroy);
    tt_nn_max_pool2d_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_max_pool2d_args call = {
        .kernel_size = a.kernel_size,
        .stride = a.stride,
        .padding = a.padding,
        .dilation = a.dilation,
        .kernel_size_hw = {a.kernel_size_hw[0], a.kernel_size_hw[1]},
        .stride_hw = {a.stride_hw[0], a.stride_hw[1]},
        .padding_hw = {a.padding_hw[0], a.padding_hw[1]},
        .dilation_hw = {a.dilation_hw[0], a.dilation_hw[1]},
        .ceil_mode = a.ceil_mode,
    };
    return pooling_new(&cls, "tt_nn_max_pool2d", &call, sizeof call, a.kernel_size, a.kernel_size_hw);
}

/* ---- the mean */

static tt_tensor *avg_pool2d_forward(tt_module *self, tt_tensor *x) {
    tt_avg_pool2d_args call = *(const tt_avg_pool2d_args *)tt_module_user(self);
    call.x = x;
    return tt_avg_pool2d_with(&call, offsetof(tt_avg_pool2d_args, tt_end));
}

tt_module *tt_nn_avg_pool2d_with(const tt_nn_avg_pool2d_args *args, size_t size) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "AvgPool2d", .forward = avg_pool2d_forward, .destroy = tt__layer_destroy);
    tt_nn_avg_pool2d_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_avg_pool2d_args call = {
        .kernel_size = a.kernel_size,
        .stride = a.stride,
        .padding = a.padding,
        .kernel_size_hw = {a.kernel_size_hw[0], a.kernel_size_hw[1]},
        .stride_hw = {a.stride_hw[0], a.stride_hw[1]},
        .padding_hw = {a.padding_hw[0], a.padding_hw[1]},
        .ceil_mode = a.ceil_mode,
        .exclude_padding = a.exclude_padding,
        .divisor_override = a.divisor_override,
    };
    return pooling_new(&cls, "tt_nn_avg_pool2d", &call, sizeof call, a.kernel_size, a.kernel_size_hw);
}

/* ---- the mean, to a given size */

typedef struct adaptive_size {
    int64_t height, width;
} adaptive_size;

static tt_tensor *adaptive_avg_pool2d_forward(tt_module *self, tt_tensor *x) {
    const adaptive_size *to = tt_module_user(self);
    return tt_adaptive_avg_pool2d(x, to->height, to->width);
}

tt_module *tt_nn_adaptive_avg_pool2d(int64_t height, int64_t width) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "AdaptiveAvgPool2d", .forward = adaptive_avg_pool2d_forward,
                        .destroy = tt__layer_destroy);
    const adaptive_size to = {height, width};
    if (height < 1 || width < 1)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_nn_adaptive_avg_pool2d: expected sizes of at least 1, got (%lld, %lld)",
                             (long long)height, (long long)width);
    return pooling_new(&cls, "tt_nn_adaptive_avg_pool2d", &to, sizeof to, 1, (const int64_t[]){0, 0});
}
