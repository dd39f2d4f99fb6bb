#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/adagrad_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__adagrad_kernels) = {.f32 = adagrad_f32, .f64 = adagrad_f64};
