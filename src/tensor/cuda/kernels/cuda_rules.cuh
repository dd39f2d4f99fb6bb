/* A rule's loop (tensor/rules) for the element types of a device: includes TT__RULE_LOOP, as optim/rules/rule_types.h
 * does for the host. The includer defines RULE_FIRST and RULE_STRIDE. */
#include <math.h>

#ifndef RULE
#define RULE static __device__ inline
#define RULE_LOOP static __device__ __forceinline__
#define RULE_LANES 1
#define restrict __restrict__
#endif

#include "tensor/rules/each_real.h"
