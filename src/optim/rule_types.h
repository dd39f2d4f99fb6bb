/* A rule's loop for each element type: includes TT__RULE_LOOP with REAL the type, FMA and SQRT its functions and
 * NAME(x) a name of its own. */
#include <math.h>

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
