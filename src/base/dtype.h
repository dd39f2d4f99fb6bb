/* Element types: their sizes, and 16-bit floats in software. */
#ifndef TT_BASE_DTYPE_H
#define TT_BASE_DTYPE_H

#include <tutti/base.h>

#include <stdint.h>
#include <string.h>

enum { TT__DTYPES = TT_BOOL + 1 };

extern const unsigned char tt__dtype_sizes[TT__DTYPES];

/* Return the bytes of an element, without a call; 0: `dtype` is no element type. */
static inline size_t tt__dtype_size(tt_dtype dtype) {
    return (unsigned)dtype < TT__DTYPES ? tt__dtype_sizes[dtype] : 0;
}

/* ---- f16 (IEEE binary16) and bf16 (the upper half of an f32). Rounding is to nearest, ties to even. Results have the
 * bits of F16C instructions, also in NaNs: their payload is kept, and a signalling NaN becomes quiet. Nothing branches
 * on data, so loops over these functions vectorise. ---- */

static inline float tt__float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t tt__bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tt__float_of_bf16(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16, is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return tt__float_of_bits(bits | is_nan << 22);
}

static inline uint16_t tt__bf16_of_float(float x) {
    uint32_t bits = tt__bits_of_float(x), even = bits >> 16 & 1;
    uint32_t quiet = bits >> 16 | 0x40, rounded = (bits + 0x7fff + even) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* Adding 112 = 127 - 15 to the exponent makes it an f32's. The digits of a subnormal are put behind an implicit 1,
 * which is then subtracted. */
static inline float tt__float_of_f16(uint16_t h) {
    const uint32_t exponent_mask = 0x7c00u << 13, rebase = 112u << 23, one = 1u << 23;
    uint32_t bits = (h & 0x7fffu) << 13, exponent = bits & exponent_mask, sign = (h & 0x8000u) << 16;
    uint32_t normal = bits + rebase;
    uint32_t special = (normal + rebase) | (bits > exponent_mask ? 1u << 22 : 0);
    uint32_t subnormal = tt__bits_of_float(tt__float_of_bits(normal + one) - tt__float_of_bits((112u + 1) << 23));
    uint32_t finite = exponent ? normal : subnormal;
    return tt__float_of_bits((exponent == exponent_mask ? special : finite) | sign);
}

/* If the result is subnormal: adding `align` moves the last digit that f16 keeps to the last place of the f32, so the
 * addition itself rounds. */
static inline uint16_t tt__f16_of_float(float x) {
    const uint32_t infinity = 255u << 23, too_large = (127u + 16) << 23, least_normal = 113u << 23;
    const uint32_t align = (127u - 15 + 23 - 10 + 1) << 23;
    uint32_t all = tt__bits_of_float(x), bits = all & 0x7fffffff, sign = all >> 16 & 0x8000;
    uint32_t special = bits > infinity ? 0x7e00 | (bits >> 13 & 0x3ff) : 0x7c00;
    uint32_t subnormal = tt__bits_of_float(tt__float_of_bits(bits) + tt__float_of_bits(align)) - align;
    uint32_t normal = (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    uint32_t finite = bits < least_normal ? subnormal : normal;
    return (uint16_t)((bits >= too_large ? special : finite) | sign);
}

#endif
