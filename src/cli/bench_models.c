#include "cli/bench_models.h"

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

/* ---- gpt */

enum { GPT_BATCH = 8, GPT_TOKENS = 128, GPT_WORDS = 65, GPT_WIDTH = 256, GPT_LAYERS = 4, GPT_HEADS = 4 };

static tt_module *gpt_make(void) { return tt_model_gpt(GPT_WORDS, GPT_TOKENS, GPT_WIDTH, GPT_LAYERS, GPT_HEADS); }

static tt_tensor *gpt_tokens(void) { return tt_randint(0, GPT_WORDS, TT_SHAPE(GPT_BATCH, GPT_TOKENS), NULL); }

static tt_tensor *gpt_loss(tt_tensor *y, tt_tensor *targets) {
    return tt_cross_entropy(tt_view(y, TT_SHAPE(GPT_BATCH * GPT_TOKENS, GPT_WORDS)),
                            tt_view(targets, TT_SHAPE(GPT_BATCH * GPT_TOKENS)));
}

static tt_optimizer *gpt_optimizer(tt_module *model) { return tt_adamw(tt_module_parameters(model), 3e-4, 0.01); }

/* ---- what a step needs, in floats */

enum {
    /* hidden layer, logits; the gradient of the hidden layer */
    MLP_ACTIVATIONS = MLP_BATCH * (512 + 10 + 512),
    /* relu(conv1), relu(conv2), the pool's result and places, what dropout leaves, fc1's; then the gradients of conv2's
     * result and of relu(conv1) */
    CONV_ACTIVATIONS = CONV_BATCH * (2 * 32 * 26 * 26 + 2 * 64 * 24 * 24 + 3 * 64 * 12 * 12 + 2 * 128),
    GPT_ROWS = GPT_BATCH * GPT_TOKENS,
    /* of a layer: the inputs of both norms and their results, q, k and v, attention's result, both sides of gelu; the
     * last norm's input and result, logits; then the gradients of gelu's result and of the block's */
    GPT_ACTIVATIONS = GPT_ROWS * (GPT_LAYERS * 16 * GPT_WIDTH + 2 * GPT_WIDTH + GPT_WORDS + 5 * GPT_WIDTH),
};

/* Ended by one without a name. */
static const tt__bench_model bench_models[] = {{"mlp", "784-512-10, batch 32, SGD", 400, mlp_make, mlp_inputs,
                                                mlp_targets, mlp_loss, mlp_optimizer, 1, MLP_ACTIVATIONS},
                                               {"conv", "PyTorch's MNIST example, batch 64, Adadelta", 15, conv_make,
                                                conv_inputs, conv_targets, conv_loss, conv_optimizer, 3,
                                                CONV_ACTIVATIONS},
                                               {"gpt", "4 layers of 256 channels, 8 x 128 tokens, AdamW", 10, gpt_make,
                                                gpt_tokens, gpt_tokens, gpt_loss, gpt_optimizer, 3, GPT_ACTIVATIONS},
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
