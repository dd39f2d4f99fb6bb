/* The update rules for the element types of a device. The includer defines RULE_FIRST and RULE_STRIDE: see
 * tensor/rules/each_real.h. */
#define RULE static __device__ inline
#define RULE_LOOP static __device__ __forceinline__
#define RULE_LANES 1
#define restrict __restrict__

#define TT__RULE_LOOP "tensor/rules/rule_loops.h"
#include "tensor/rules/each_real.h"
