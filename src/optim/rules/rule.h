/* Update rules on the host: those of tensor/rules/rules.h. */
#ifndef TT_OPTIM_RULE_H
#define TT_OPTIM_RULE_H

#include "base/machine/cpu.h"
#include "tensor/rules/rules.h"

typedef void (*tt__update_fn)(const tt__update *u);

/* A rule for each element type that has one. */
typedef struct tt__rule_kernels {
    tt__update_fn f32, f64;
} tt__rule_kernels;

TT__LEVEL_DECLARE(tt__rule_kernels, tt__sgd_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adam_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adamw_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__rmsprop_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adagrad_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__adadelta_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__sparse_adam_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__lamb_measure_kernels);
TT__LEVEL_DECLARE(tt__rule_kernels, tt__lamb_kernels);

#endif
