#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/lamb_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__lamb_measure_kernels) = {.f32 = lamb_measure_f32, .f64 = lamb_measure_f64};
const tt__rule_kernels TT__LEVEL_NAME(tt__lamb_kernels) = {.f32 = lamb_f32, .f64 = lamb_f64};
