/* A rule's loop in both types that are computed in: includes TT__RULE_LOOP twice. The includer defines what
 * optim/rules/rule_types.h lists. */

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
