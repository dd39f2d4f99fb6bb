#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/sgd_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__sgd_kernels) = {.f32 = sgd_f32, .f64 = sgd_f64};
