/* A rule's loop for each element type: includes TT__RULE_LOOP with REAL (the type), FMA and SQRT (its functions) and
 * NAME(x) (a name of its own). Devices include the loops of tensor/rules with their own definitions of these:
 *   RULE         what a function begins with
 *   RULE_LOOP    the same of a function that is inlined with constants
 *   RULE_FIRST   where the loop begins
 *   RULE_STRIDE  how far it strides
 *   RULE_LANES   how many sums a thread makes side by side */
#include <math.h>

#define RULE static
#define RULE_LOOP __attribute__((always_inline)) static inline
#define RULE_FIRST 0
#define RULE_STRIDE 1
#define RULE_LANES 16

#include "tensor/rules/each_real.h"
#undef RULE
#undef RULE_LOOP
#undef RULE_FIRST
#undef RULE_STRIDE
#undef RULE_LANES
