#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/rmsprop_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__rmsprop_kernels) = {.f32 = rmsprop_f32, .f64 = rmsprop_f64};
