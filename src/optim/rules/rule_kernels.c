/* The rules' loops on the host. This file is compiled once for each instruction set: base/machine/cpu.h. */
#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/rule_loops.h"
#include "tensor/rules/each_real.h"

#define RULE_KERNELS(name) \
    const tt__rule_kernels TT__LEVEL_NAME(tt__##name##_kernels) = {.f32 = name##_f32, .f64 = name##_f64};
RULE_KERNELS(sgd)
RULE_KERNELS(adam)
RULE_KERNELS(adamw)
RULE_KERNELS(sparse_adam)
RULE_KERNELS(lamb_measure)
RULE_KERNELS(lamb)
RULE_KERNELS(adagrad)
RULE_KERNELS(adadelta)
RULE_KERNELS(rmsprop)
