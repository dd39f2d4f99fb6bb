/* The loops of the generator that are worth vectorising, one table per instruction-set level. */
#ifndef TT_TENSOR_RANDOM_KERNELS_H
#define TT_TENSOR_RANDOM_KERNELS_H

#include "base/machine/cpu.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tt__random_kernels {
    /* Replace all 624 words of the state by the next 624. */
    void (*refill)(uint32_t *mt);
    /* out[i] := the output that belongs to state word mt[i]. */
    void (*temper)(uint32_t *out, const uint32_t *mt, size_t n);
    /* out[i] := low + width * uniform, from one word / from a pair of words (high half first) an element. */
    void (*uniform_f32)(float *out, const uint32_t *bits, size_t n, float low, float width);
    void (*uniform_f64)(double *out, const uint32_t *bits, size_t n, double low, double width);
    /* Box-Muller in place over 16 uniforms: d[j], d[j+8] give normals at j, j+8. */
    void (*normal16_f32)(float *d, float mean, float std);
} tt__random_kernels;

TT__LEVEL_DECLARE(tt__random_kernels, tt__random_kernels);

#endif
