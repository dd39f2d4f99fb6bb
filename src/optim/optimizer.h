/* What every optimizer is: a list of parameters, with some state tensors ("slots") for each, and a rule that updates one parameter. */
#ifndef TT_OPTIM_OPTIMIZER_H
#define TT_OPTIM_OPTIMIZER_H

#include "tensor/tensor.h"

#include <tutti/optim.h>

enum { TT__OPTIM_SLOTS = 1 };

/* Arrays over contiguous memory of one dtype: parameter, gradient, state. `fresh[s]`: slot s was made just now; its values are undefined. */
typedef struct tt__update {
    tt_dtype dtype;
    int64_t n;
    void *p;
    const void *g;
    void *state[TT__OPTIM_SLOTS];
    bool fresh[TT__OPTIM_SLOTS];
} tt__update;

typedef struct tt__optimizer_class {
    const char *name;
    int slots; /* how many of slot_names this kind has; an optimizer may use fewer */
    const char *slot_names[TT__OPTIM_SLOTS];
    void (*update)(const tt_optimizer *optimizer, const tt__update *u);
} tt__optimizer_class;

/* An optimizer over `params` that uses the first `slots` slots; `options` (`size` bytes) are copied, tt__optimizer_options() gives them to update. */
tt_optimizer *tt__optimizer_new(const tt__optimizer_class *cls, tt_named_tensors params, int slots, const void *options,
                                size_t size);
const void *tt__optimizer_options(const tt_optimizer *optimizer);

#endif
