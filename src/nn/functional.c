/* Modules without parameters: an operator each. */
#include <tutti/nn.h>

static tt_tensor *relu(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_relu(x);
}

static tt_tensor *flatten(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_flatten(x, 1);
}

tt_module *tt_nn_relu(void) {
    static const tt_module_class cls = {.name = "ReLU", .forward = relu};
    return tt_module_new(&cls, NULL);
}

tt_module *tt_nn_flatten(void) {
    static const tt_module_class cls = {.name = "Flatten", .forward = flatten};
    return tt_module_new(&cls, NULL);
}
