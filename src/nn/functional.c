/* Modules without parameters, one operator each. */
#include "nn/module.h"

#include <tutti/nn.h>

static tt_tensor *relu_forward(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_relu(x);
}

static tt_tensor *flatten_forward(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_flatten(x, 1);
}

static tt_tensor *identity_forward(tt_module *self, tt_tensor *x) {
    (void)self;
    return x;
}

tt_module *tt_nn_relu(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "ReLU", .forward = relu_forward);
    return tt__module_new(&cls, NULL);
}

tt_module *tt_nn_flatten(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Flatten", .forward = flatten_forward);
    return tt__module_new(&cls, NULL);
}

tt_module *tt_nn_identity(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Identity", .forward = identity_forward);
    return tt__module_new(&cls, NULL);
}
