/* Loops between f32 and the floats of 16 bits, one table per instruction-set level (levels.h): the bits are those of
 * base/dtype.h at every level. */
#ifndef TT_TENSOR_CPU_HALF_LOOPS_H
#define TT_TENSOR_CPU_HALF_LOOPS_H

#include "base/machine/cpu.h"

#include <stdint.h>

typedef struct tt__half_loops {
    void (*widen)(int64_t n, const uint16_t *x, float *y);
    void (*narrow)(int64_t n, const float *x, uint16_t *y); /* to nearest, ties to even; NaN stays NaN */
} tt__half_loops;

typedef struct tt__half_kernels {
    tt__half_loops f16, bf16;
} tt__half_kernels;

TT__LEVEL_DECLARE(tt__half_kernels, tt__half_kernels_of_types);
static inline const tt__half_kernels *tt__half_loops_of_level(void) {
    return TT__LEVEL_CHOOSE(tt__half_kernels_of_types);
}

#endif
