#include "optim/rule.h"

#include <math.h>

#define REAL float
#define FMA fmaf
#define SQRT sqrtf
#define NAME(x) x##_f32
#include "optim/adam_loop.h"
#undef REAL
#undef FMA
#undef SQRT
#undef NAME

#define REAL double
#define FMA fma
#define SQRT sqrt
#define NAME(x) x##_f64
#include "optim/adam_loop.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__adam_kernels) = {.f32 = adam_f32, .f64 = adam_f64};
const tt__rule_kernels TT__LEVEL_NAME(tt__adamw_kernels) = {.f32 = adamw_f32, .f64 = adamw_f64};
