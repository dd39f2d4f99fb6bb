#include "optim/rules/rule.h"

#define TT__RULE_LOOP "tensor/rules/sparse_adam_loop.h"
#include "optim/rules/rule_types.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__sparse_adam_kernels) = {.f32 = sparse_adam_f32, .f64 = sparse_adam_f64};
