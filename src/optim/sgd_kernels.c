#include "optim/rule.h"

#include <math.h>

#define REAL float
#define FMA fmaf
#define NAME(x) x##_f32
#include "optim/sgd_loop.h"
#undef REAL
#undef FMA
#undef NAME

#define REAL double
#define FMA fma
#define NAME(x) x##_f64
#include "optim/sgd_loop.h"

const tt__rule_kernels TT__LEVEL_NAME(tt__sgd_kernels) = {.f32 = sgd_f32, .f64 = sgd_f64};
