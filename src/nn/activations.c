/* Modules without parameters, of one operator and at most one number each. */
#include "base/error.h"
#include "nn/module.h"

#include <tutti/nn.h>

#include <stdlib.h>

#define ACTIVATION(called, pytorch, ...)                                                                           \
    static tt_tensor *called##_module_forward(tt_module *self, tt_tensor *x) {                                     \
        (void)self;                                                                                                \
        return __VA_ARGS__;                                                                                        \
    }                                                                                                              \
    tt_module *tt_nn_##called(void) {                                                                              \
        static const tt_module_class cls = TT_MODULE_CLASS(.name = (pytorch), .forward = called##_module_forward); \
        return tt__module_new(&cls, NULL);                                                                         \
    }

ACTIVATION(sigmoid, "Sigmoid", tt_sigmoid(x))
ACTIVATION(tanh, "Tanh", tt_tanh(x))
ACTIVATION(silu, "SiLU", tt_silu(x))
ACTIVATION(gelu, "GELU", tt_gelu(x))
ACTIVATION(gelu_tanh, "GELU", tt_gelu(x, .tanh = true))

/* ---- with a number, which the module owns */

static void number_destroy(tt_module *self) { free(tt_module_user(self)); }

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
        TT_MODULE_CLASS(.name = (pytorch), .forward = called##_module_forward, .destroy = number_destroy)

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
