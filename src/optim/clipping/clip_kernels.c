#include "optim/clipping/clip_pass.h"

#define TT__RULE_LOOP "optim/clipping/clip_loop.h"
#include "optim/rules/rule_types.h"

#define CLIP_KERNELS(type)                                                                                         \
    {                                                                                                              \
        .sum_of_squares = sum_of_squares_##type, .sum_of_powers = sum_of_powers_##type, .largest = largest_##type, \
        .scale = scale_##type, .clamp = clamp_##type, .average = average_##type                                    \
    }
const tt__clip_kernels TT__LEVEL_NAME(tt__clip_kernels_of_types) = {.f32 = CLIP_KERNELS(f32), .f64 = CLIP_KERNELS(f64)};
