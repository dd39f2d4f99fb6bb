#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/adam_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__adam_kernels) = {.f32 = adam_f32, .f64 = adam_f64};
const tt__rule_kernels TT__LEVEL_NAME(tt__adamw_kernels) = {.f32 = adamw_f32, .f64 = adamw_f64};
