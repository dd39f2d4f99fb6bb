/* A loop for both types that are computed in: includes TT__RULE_LOOP twice, with REAL (the type), FMA and SQRT (its
 * functions) and NAME(x) (a name of its own). A device defines what the rest of a loop is made of before; the host's
 * is here:
 *   RULE         what a function begins with
 *   RULE_LOOP    the same of a function that is inlined with constants
 *   RULE_FIRST   where the loop begins
 *   RULE_STRIDE  how far it strides
 *   RULE_LANES   how many sums a thread makes side by side */
#include <math.h>

#ifndef RULE
#define RULE static
#define RULE_LOOP __attribute__((always_inline)) static inline
#define RULE_FIRST 0
#define RULE_STRIDE 1
#define RULE_LANES 16
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
