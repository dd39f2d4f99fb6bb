/* Trains a ready model from seed 0 on batches that come on standard input, and prints the loss of each step:
 *
 *   models MODEL STEPS ROWS < batches
 *
 * A batch is x, then y (i64), as the model's line in the table says, of ROWS rows. tests/parity/test_models.py does the
 * same with PyTorch. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

typedef struct trained_model {
    const char *name;
    tt_dtype dtype;
    tt_shape x; /* of a row */
    int64_t y;  /* targets of a row */
    tt_module *(*make)(void);
    tt_optimizer *(*optimizer)(tt_module *model);
    tt_tensor *(*loss)(tt_tensor *y, tt_tensor *target);
} trained_model;

static tt_module *make_mlp(void) { return tt_model_mlp(TT_SIZES(784, 512, 10)); }
static tt_module *make_mnist(void) { return tt_model_mnist_convnet(0, 0); }
static tt_module *make_resnet(void) { return tt_model_resnet18(10, .dtype = TT_F64); }
static tt_module *make_gpt(void) { return tt_model_gpt(65, 128, 256, 4, 4); }
static tt_module *make_lstm(void) {
    return tt_nn_sequential_named({"embedding", tt_nn_embedding(65, 64)},
                                  {"lstm", tt_nn_lstm(64, 128, .num_layers = 2, .batch_first = true)},
                                  {"head", tt_nn_linear(128, 65)});
}

static tt_optimizer *train_with_sgd(tt_module *model) {
    return tt_sgd(tt_module_parameters(model), 0.01, .momentum = 0.9);
}
static tt_optimizer *train_with_adadelta(tt_module *model) { return tt_adadelta(tt_module_parameters(model), 1.0); }
static tt_optimizer *train_with_adam(tt_module *model) { return tt_adam(tt_module_parameters(model), 3e-3); }
static tt_optimizer *train_with_adamw(tt_module *model) { return tt_adamw(tt_module_parameters(model), 3e-4, 0.01); }

static tt_tensor *loss_of_logits(tt_tensor *y, tt_tensor *target) {
    return tt_cross_entropy(tt_reshape(y, TT_SHAPE(-1, tt_tensor_size(y, -1))), tt_reshape(target, TT_SHAPE(-1)));
}
static tt_tensor *loss_of_logs(tt_tensor *y, tt_tensor *target) {
    return tt_nll_loss(y, tt_reshape(target, TT_SHAPE(-1)));
}

static const trained_model models[] = {
    {"mlp", TT_F32, {3, {1, 28, 28}}, 1, make_mlp, train_with_sgd, loss_of_logits},
    {"mnist", TT_F32, {3, {1, 28, 28}}, 1, make_mnist, train_with_adadelta, loss_of_logs},
    {"resnet18", TT_F64, {3, {3, 33, 33}}, 1, make_resnet, train_with_sgd, loss_of_logits},
    {"gpt", TT_I64, {1, {128}}, 128, make_gpt, train_with_adamw, loss_of_logits},
    {"lstm", TT_I64, {1, {50}}, 50, make_lstm, train_with_adam, loss_of_logits},
};

static const trained_model *model_named(const char *name) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, name))
            return &models[i];
    return NULL;
}

/* Read a tensor; NULL, and an error, if the input ends. */
static tt_tensor *read_batch(tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tt_empty(shape, dtype);
    size_t bytes = x ? (size_t)tt_tensor_numel(x) * tt_dtype_size(dtype) : 0;
    if (x && fread(tt_tensor_data(x), 1, bytes, stdin) != bytes) {
        tt_ignore(tt_fail(TT_ERR_IO, "expected a batch of %zu bytes on standard input; it ended", bytes));
        return NULL;
    }
    return x;
}

static tt_status train_step(const trained_model *kind, tt_module *model, tt_optimizer *optimizer, int64_t rows) {
    TT_AUTO_SCOPE;
    tt_shape shape = {.ndim = kind->x.ndim + 1, .dim = {rows}};
    memcpy(shape.dim + 1, kind->x.dim, (size_t)kind->x.ndim * sizeof *shape.dim);
    tt_tensor *x = read_batch(shape, kind->dtype), *target = read_batch(TT_SHAPE(rows, kind->y), TT_I64);
    if (!x || !target)
        return tt_last_status();
    double value = 0;
    tt_optimizer_zero_grad(optimizer);
    tt_tensor *loss = kind->loss(tt_module_forward(model, x), target);
    tt_status status = tt_backward(loss);
    if (!status)
        status = tt_item(loss, &value);
    printf("%.17g\n", value);
    return status ? status : tt_optimizer_step(optimizer);
}

int main(int argc, char **argv) {
    const trained_model *kind = argc == 4 ? model_named(argv[1]) : NULL;
    if (!kind) {
        fprintf(stderr, "usage: models MODEL STEPS ROWS < batches\n");
        return 2;
    }
    tt_manual_seed(0);
    tt_module *model = kind->make();
    tt_optimizer *optimizer = model ? kind->optimizer(model) : NULL;
    tt_status status = optimizer ? TT_OK : tt_last_status();
    for (long step = 0; step < strtol(argv[2], NULL, 10) && !status; step++)
        status = train_step(kind, model, optimizer, strtol(argv[3], NULL, 10));
    if (status)
        tt_report();
    tt_optimizer_free(optimizer);
    tt_module_free(model);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
