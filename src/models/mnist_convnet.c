/* PyTorch's basic MNIST example: x (N,1,28,28)
 *   relu(conv1)  (N,32,26,26)    relu(conv2)  (N,64,24,24)    max_pool2d 2  (N,64,12,12), dropout, flatten  (N,9216)
 *   relu(fc1)    (N,128), dropout                             log_softmax(fc2)  (N,10) */
#include "base/args.h"
#include "models/parts.h"
#include "nn/temporaries.h"

#include <tutti/models.h>

static const char who[] = "tt_model_mnist_convnet";

typedef struct mnist_convnet {
    tt_module *conv1, *conv2, *fc1, *fc2; /* borrowed: children */
    double dropout1, dropout2;
} mnist_convnet;

static tt_tensor *mnist_convnet_forward(tt_module *self, tt_tensor *x) {
    const mnist_convnet *net = tt_module_user(self);
    tt_tensor *const given[] = {x, NULL};
    tt__temporaries made = {0};
    x = tt__temporary(&made, given, tt_relu_(tt_module_forward(net->conv1, x)));
    x = tt__temporary(&made, given, tt_relu_(tt_module_forward(net->conv2, x)));
    x = tt__temporary(&made, given, tt_max_pool2d(x, 2));
    x = tt__temporary(&made, given, tt__drop(self, x, net->dropout1));
    x = tt__temporary(&made, given, tt_flatten(x, 1));
    x = tt__temporary(&made, given, tt_relu_(tt_module_forward(net->fc1, x)));
    x = tt__temporary(&made, given, tt__drop(self, x, net->dropout2));
    x = tt__temporary(&made, given, tt_module_forward(net->fc2, x));
    tt_tensor *y = tt_log_softmax(x, 1);
    tt__temporaries_end(&made, y, NULL);
    return y;
}

static const tt_module_class mnist_convnet_class =
    TT_MODULE_CLASS(.name = "MNISTConvNet", .forward = mnist_convnet_forward, .destroy = tt__layer_destroy);

static tt_status mnist_convnet_build(tt_module *self, const tt_model_mnist_convnet_args *a) {
    mnist_convnet *net = tt_module_user(self);
    tt_generator *g = a->generator;
    net->dropout1 = a->dropout1;
    net->dropout2 = a->dropout2;
    TT__TRY(tt__add_part(&net->conv1, self, "conv1", tt_nn_conv2d(1, 32, 3, .generator = g, .dtype = a->dtype)));
    TT__TRY(tt__add_part(&net->conv2, self, "conv2", tt_nn_conv2d(32, 64, 3, .generator = g, .dtype = a->dtype)));
    TT__TRY(tt__add_part(&net->fc1, self, "fc1", tt_nn_linear(9216, 128, .generator = g, .dtype = a->dtype)));
    return tt__add_part(&net->fc2, self, "fc2", tt_nn_linear(128, 10, .generator = g, .dtype = a->dtype));
}

tt_module *tt_model_mnist_convnet_with(const tt_model_mnist_convnet_args *args, size_t size) {
    tt_model_mnist_convnet_args a;
    TT__ARGS_COPY(a, args, size);
    if (tt__dropout_check(who, "dropout1", a.dropout1) || tt__dropout_check(who, "dropout2", a.dropout2) ||
        tt__layer_dtype_check(who, a.dtype))
        return NULL;
    tt_module *self = tt__layer_new(who, &mnist_convnet_class, sizeof(mnist_convnet));
    return self ? tt__model_made(who, self, mnist_convnet_build(self, &a)) : NULL;
}
