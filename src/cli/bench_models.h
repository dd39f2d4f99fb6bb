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
} tt__bench_model;

/* The model called `name`; NULL: there is none. */
const tt__bench_model *tt__bench_model_find(const char *name);

#endif
