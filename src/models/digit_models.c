/* Models for digits: the multi-layer perceptron and the network of PyTorch's basic MNIST example. */
#include "base/args.h"
#include "models/parts.h"
#include "nn/initial.h"

#include <tutti/models.h>

static const char mlp_name[] = "tt_model_mlp";

static tt_module *mlp_linear(const tt_model_mlp_args *a, int64_t i) {
    return tt_nn_linear(a->sizes[i], a->sizes[i + 1], .generator = a->generator, .dtype = a->dtype);
}

static tt_status mlp_build(tt_module *mlp, const tt_model_mlp_args *a) {
    TT__TRY(tt__add_numbered(mlp, tt_nn_flatten()));
    for (int64_t i = 0; i + 1 < a->count; i++) {
        TT__TRY(tt__add_numbered(mlp, mlp_linear(a, i)));
        if (i + 2 < a->count)
            TT__TRY(tt__add_numbered(mlp, tt_nn_relu()));
    }
    return TT_OK;
}

tt_module *tt_model_mlp_with(const tt_model_mlp_args *args, size_t size) {
    tt_model_mlp_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.sizes || a.count < 2)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected at least 2 sizes, those of input and output, got %lld%s",
                             mlp_name, (long long)a.count, a.sizes ? "" : " and no list");
    if (tt__layer_dtype_check(mlp_name, a.dtype))
        return NULL;
    tt_module *mlp = tt__empty_sequential();
    tt_status status = mlp ? mlp_build(mlp, &a) : tt_last_status();
    return tt__model_made(mlp_name, mlp, status);
}

/* ---- the example's network: x (N,1,28,28)
 *   relu(conv1)  (N,32,26,26)    relu(conv2)  (N,64,24,24)    max_pool2d 2  (N,64,12,12), dropout, flatten  (N,9216)
 *   relu(fc1)    (N,128), dropout                             log_softmax(fc2)  (N,10) */

static const char convnet_name[] = "tt_model_mnist_convnet";

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
    if (tt__dropout_check(convnet_name, "dropout1", a.dropout1) ||
        tt__dropout_check(convnet_name, "dropout2", a.dropout2) || tt__layer_dtype_check(convnet_name, a.dtype))
        return NULL;
    tt_module *self = tt__layer_new(convnet_name, &mnist_convnet_class, sizeof(mnist_convnet));
    return self ? tt__model_made(convnet_name, self, mnist_convnet_build(self, &a)) : NULL;
}
