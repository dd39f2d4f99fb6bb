#include "base/dtype.h"
#include "tensor/cpu/half/half_loops.h"

#define LOOPS(name)                                                                       \
    static void widen_##name(int64_t n, const uint16_t *restrict x, float *restrict y) {  \
        for (int64_t i = 0; i < n; i++)                                                   \
            y[i] = tt__float_of_##name(x[i]);                                             \
    }                                                                                     \
    static void narrow_##name(int64_t n, const float *restrict x, uint16_t *restrict y) { \
        for (int64_t i = 0; i < n; i++)                                                   \
            y[i] = tt__##name##_of_float(x[i]);                                           \
    }

LOOPS(f16)
LOOPS(bf16)

const tt__half_kernels TT__LEVEL_NAME(tt__half_kernels_of_types) = {
    .f16 = {widen_f16, narrow_f16},
    .bf16 = {widen_bf16, narrow_bf16},
};
