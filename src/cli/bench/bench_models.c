/* The models that `tutti bench step` trains. */
#include "cli/bench/bench.h"

#include <string.h>

/* ---- mlp: 784-512-10 */

enum { MLP_BATCH = 32 };

static tt_module *mlp_make(void) { return tt_model_mlp(TT_SIZES(784, 512, 10)); }

static tt_tensor *mlp_inputs(void) { return tt_randn(TT_SHAPE(MLP_BATCH, 1, 28, 28), NULL); }

static tt_tensor *mlp_targets(void) { return tt_randint(0, 10, TT_SHAPE(MLP_BATCH), NULL); }

static tt_tensor *mlp_loss(tt_tensor *y, tt_tensor *targets) { return tt_cross_entropy(y, targets); }

static tt_optimizer *mlp_optimizer(tt_module *model) { return tt_sgd(tt_module_parameters(model), 1e-3); }

/* ---- conv: PyTorch's basic MNIST example */

enum { CONV_BATCH = 64 };

static tt_module *conv_make(void) { return tt_model_mnist_convnet(0.25, 0.5); }

static tt_tensor *conv_inputs(void) { return tt_randn(TT_SHAPE(CONV_BATCH, 1, 28, 28), NULL); }

static tt_tensor *conv_targets(void) { return tt_randint(0, 10, TT_SHAPE(CONV_BATCH), NULL); }

static tt_tensor *conv_loss(tt_tensor *y, tt_tensor *targets) { return tt_nll_loss(y, targets); }

static tt_optimizer *conv_optimizer(tt_module *model) { return tt_adadelta(tt_module_parameters(model), 1.0); }

/* ---- gpt; gpt2: the smallest published one */

enum { GPT_BATCH = 8, GPT_TOKENS = 128, GPT_WORDS = 65, GPT_WIDTH = 256, GPT_LAYERS = 4, GPT_HEADS = 4 };
enum { GPT2_BATCH = 16, GPT2_TOKENS = 1024, GPT2_WORDS = 50257, GPT2_WIDTH = 768, GPT2_LAYERS = 12, GPT2_HEADS = 12 };

static tt_module *gpt_make(void) { return tt_model_gpt(GPT_WORDS, GPT_TOKENS, GPT_WIDTH, GPT_LAYERS, GPT_HEADS); }
static tt_module *gpt2_make(void) {
    return tt_model_gpt2(GPT2_WORDS, GPT2_TOKENS, GPT2_WIDTH, GPT2_LAYERS, GPT2_HEADS);
}

static tt_tensor *gpt_tokens(void) { return tt_randint(0, GPT_WORDS, TT_SHAPE(GPT_BATCH, GPT_TOKENS), NULL); }
static tt_tensor *gpt2_tokens(void) { return tt_randint(0, GPT2_WORDS, TT_SHAPE(GPT2_BATCH, GPT2_TOKENS), NULL); }

static tt_tensor *gpt_loss(tt_tensor *y, tt_tensor *targets) {
    return tt_cross_entropy(tt_reshape(y, TT_SHAPE(-1, tt_tensor_size(y, -1))), tt_reshape(targets, TT_SHAPE(-1)));
}

static tt_optimizer *gpt_optimizer(tt_module *model) { return tt_adamw(tt_module_parameters(model), 3e-4, 0.01); }

/* ---- resnet50 */

enum { RESNET_BATCH = 64, RESNET_SIDE = 224, RESNET_CLASSES = 1000 };

static tt_module *resnet_make(void) { return tt_model_resnet50(RESNET_CLASSES); }

static tt_tensor *resnet_inputs(void) {
    tt_tensor *rows = tt_randn(TT_SHAPE(RESNET_BATCH, 3, RESNET_SIDE, RESNET_SIDE), NULL);
    tt_tensor *x = tt_to_memory_format(rows, TT_CHANNELS_LAST);
    tt_tensor_free(rows);
    return x;
}

static tt_tensor *resnet_targets(void) { return tt_randint(0, RESNET_CLASSES, TT_SHAPE(RESNET_BATCH), NULL); }

static tt_optimizer *resnet_optimizer(tt_module *model) {
    return tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9);
}

/* ---- what a step needs, in floats */

enum {
    /* hidden layer, logits; the gradient of the hidden layer */
    MLP_ACTIVATIONS = MLP_BATCH * (512 + 10 + 512),
    /* relu(conv1), relu(conv2), the pool's result and places, what dropout leaves, fc1's; then the gradients of conv2's
     * result and of relu(conv1) */
    CONV_ACTIVATIONS = CONV_BATCH * (2 * 32 * 26 * 26 + 2 * 64 * 24 * 24 + 3 * 64 * 12 * 12 + 2 * 128),
    /* the results of convolutions and of norms */
    RESNET_ACTIVATIONS = RESNET_BATCH * 2 * 11114000,
};

/* For each layer: inputs and results of both norms, q, k and v, attention's result, input and result of gelu. Then the
 * last norm's input and result, logits, and the gradients of gelu's result and of the block's. */
#define GPT_ACTIVATIONS(M) \
    ((int64_t)M##_BATCH * M##_TOKENS * (M##_LAYERS * 16 * M##_WIDTH + 2 * M##_WIDTH + M##_WORDS + 5 * M##_WIDTH))

/* The last one has no name. */
static const tt__bench_model bench_models[] = {
    {"mlp", "784-512-10, batch 32, SGD", 400, mlp_make, mlp_inputs, mlp_targets, mlp_loss, mlp_optimizer, 1,
     MLP_ACTIVATIONS},
    {"conv", "PyTorch's MNIST example, batch 64, Adadelta", 15, conv_make, conv_inputs, conv_targets, conv_loss,
     conv_optimizer, 3, CONV_ACTIVATIONS},
    {"gpt", "4 layers of 256 channels, 8 x 128 tokens, AdamW", 10, gpt_make, gpt_tokens, gpt_tokens, gpt_loss,
     gpt_optimizer, 3, GPT_ACTIVATIONS(GPT)},
    {"gpt2", "GPT-2 of 124M parameters, 16 x 1024 tokens, AdamW", 5, gpt2_make, gpt2_tokens, gpt2_tokens, gpt_loss,
     gpt_optimizer, 3, GPT_ACTIVATIONS(GPT2)},
    {"resnet50", "ResNet-50, 64 pictures of 224 x 224, channels last, SGD with momentum", 5, resnet_make, resnet_inputs,
     resnet_targets, mlp_loss, resnet_optimizer, 2, RESNET_ACTIVATIONS},
    {0}};

const tt__bench_model *tt__bench_model_find(const char *name) {
    for (const tt__bench_model *model = bench_models; model->name; model++)
        if (!strcmp(model->name, name))
            return model;
    return NULL;
}

int64_t tt__bench_model_needs(const tt__bench_model *kind, tt_module *model) {
    const tt_named_tensors *all = tt_module_parameters(model);
    int64_t parameters = 0;
    for (int64_t i = 0; all && i < all->count; i++)
        parameters += tt_tensor_numel(all->tensors[i]);
    return ((1 + kind->per_parameter) * parameters + kind->activations) * (int64_t)sizeof(float);
}
