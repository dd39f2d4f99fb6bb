/* The loops of clip.h, compiled once for each instruction set: base/machine/cpu.h. */
#include "optim/clipping/clip.h"

#include <string.h>

#define TT__RULE_LOOP "optim/clipping/clip_loop.h"
#include "tensor/rules/each_real.h"

#define CLIP_KERNELS(type)                                                                                         \
    {                                                                                                              \
        .sum_of_squares = sum_of_squares_##type, .sum_of_powers = sum_of_powers_##type, .largest = largest_##type, \
        .scale = scale_##type, .clamp = clamp_##type, .average = average_##type                                    \
    }
const tt__clip_kernels TT__LEVEL_NAME(tt__clip_kernels_of_types) = {.f32 = CLIP_KERNELS(f32), .f64 = CLIP_KERNELS(f64)};

/* Infinities and NaN have an exponent of all ones. */
#define UNSCALE(name, real, bits_type, exponent)                     \
    static bool unscale_##name(void *at, int64_t n, double by) {     \
        real *x = at;                                                \
        const real factor = (real)by;                                \
        bits_type found = 0;                                         \
        for (int64_t i = 0; i < n; i++) {                            \
            bits_type bits;                                          \
            memcpy(&bits, &x[i], sizeof bits);                       \
            found |= (bits_type)((bits & (exponent)) == (exponent)); \
            x[i] *= factor;                                          \
        }                                                            \
        return found;                                                \
    }

UNSCALE(f32, float, uint32_t, 0x7f800000U)
UNSCALE(f64, double, uint64_t, 0x7ff0000000000000U)

const tt__unscale_kernels TT__LEVEL_NAME(tt__unscale_kernels_of_types) = {.f32 = unscale_f32, .f64 = unscale_f64};
