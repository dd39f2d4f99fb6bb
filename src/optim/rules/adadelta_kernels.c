#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/adadelta_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__adadelta_kernels) = {.f32 = adadelta_f32, .f64 = adadelta_f64};
