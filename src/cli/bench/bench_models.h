/* The models that `tutti bench step` trains, each as a PyTorch program of the same name does (bench/peers). */
#ifndef TT_CLI_BENCH_MODELS_H
#define TT_CLI_BENCH_MODELS_H

#include <tutti/tutti.h>

typedef struct tt__bench_model {
    const char *name, *what;
    int64_t steps;              /* a block, unless told otherwise */
    tt_module *(*make)(void);   /* weights drawn from the thread's generator */
    tt_tensor *(*inputs)(void); /* a batch */
    tt_tensor *(*targets)(void);
    tt_tensor *(*loss)(tt_tensor *outputs, tt_tensor *targets);
    tt_optimizer *(*optimizer)(tt_module *model);
    /* What the arithmetic of a step needs at once, in floats beside the parameters: how many of each parameter's size
     * (gradient, the optimizer's states), and what backward reads again with the gradients under way at its peak. */
    int64_t per_parameter, activations;
} tt__bench_model;

/* The bytes that a step of this model must hold at once in f32, however it is computed. */
int64_t tt__bench_model_needs(const tt__bench_model *kind, tt_module *model);

/* The model called `name`; NULL: there is none. */
const tt__bench_model *tt__bench_model_find(const char *name);

#endif
