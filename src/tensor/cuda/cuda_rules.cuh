/* A rule's loop (tensor/rules) for the element types of a device: includes TT__RULE_LOOP, as optim/rule_types.h does
 * for the host. Whoever includes this has defined RULE_FIRST and RULE_STRIDE. */
#include <math.h>

#ifndef RULE
#define RULE static __device__ inline
#define RULE_LOOP static __device__ __forceinline__
#define RULE_LANES 1
#define restrict __restrict__
#endif

#define REAL float
#define FMA fmaf
#define SQRT sqrtf
#define NAME(x) x##_f32
#include TT__RULE_LOOP
#undef REAL
#undef FMA
#undef SQRT
#undef NAME

#define REAL double
#define FMA fma
#define SQRT sqrt
#define NAME(x) x##_f64
#include TT__RULE_LOOP
#undef REAL
#undef FMA
#undef SQRT
#undef NAME
#undef TT__RULE_LOOP
