/* The words of many counters of Philox at once, for loops that draw a number for each element. Two groups of counters
 * run side by side, because the steps of one group depend on each other. */
#ifndef TT_TENSOR_CPU_PHILOX_WORDS_H
#define TT_TENSOR_CPU_PHILOX_WORDS_H

#include "base/philox.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

typedef __m512i philox_lanes;
enum { PHILOX_LANES = 16 };

static inline philox_lanes philox_all(uint32_t x) { return _mm512_set1_epi32((int)x); }

static inline philox_lanes philox_load(const uint32_t *x) { return _mm512_loadu_si512(x); }

/* x * factor, lane by lane: the lower and the upper halves of the products. */
static inline philox_lanes philox_products(philox_lanes x, philox_lanes factor, philox_lanes *high) {
    __m512i even = _mm512_mul_epu32(x, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);
    *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}

static inline philox_lanes philox_xor(philox_lanes a, philox_lanes b, philox_lanes c) {
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

/* Write c[0][i], c[1][i], c[2][i], c[3][i] for i = 0, 1, ... 15 in this order. */
static inline void philox_write(const philox_lanes c[4], uint32_t *words) {
    __m512i low01 = _mm512_unpacklo_epi32(c[0], c[1]), low23 = _mm512_unpacklo_epi32(c[2], c[3]);
    __m512i high01 = _mm512_unpackhi_epi32(c[0], c[1]), high23 = _mm512_unpackhi_epi32(c[2], c[3]);
    __m512i a = _mm512_unpacklo_epi64(low01, low23), b = _mm512_unpackhi_epi64(low01, low23);
    __m512i d = _mm512_unpacklo_epi64(high01, high23), e = _mm512_unpackhi_epi64(high01, high23);
    __m512i ab = _mm512_shuffle_i32x4(a, b, 0x44), de = _mm512_shuffle_i32x4(d, e, 0x44);
    _mm512_storeu_si512(words, _mm512_shuffle_i32x4(ab, de, 0x88));
    _mm512_storeu_si512(words + 16, _mm512_shuffle_i32x4(ab, de, 0xDD));
    ab = _mm512_shuffle_i32x4(a, b, 0xEE), de = _mm512_shuffle_i32x4(d, e, 0xEE);
    _mm512_storeu_si512(words + 32, _mm512_shuffle_i32x4(ab, de, 0x88));
    _mm512_storeu_si512(words + 48, _mm512_shuffle_i32x4(ab, de, 0xDD));
}

#elif defined(__AVX2__)
#include <immintrin.h>

typedef __m256i philox_lanes;
enum { PHILOX_LANES = 8 };

static inline philox_lanes philox_all(uint32_t x) { return _mm256_set1_epi32((int)x); }

static inline philox_lanes philox_load(const uint32_t *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

static inline philox_lanes philox_products(philox_lanes x, philox_lanes factor, philox_lanes *high) {
    __m256i even = _mm256_mul_epu32(x, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

static inline philox_lanes philox_xor(philox_lanes a, philox_lanes b, philox_lanes c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

static inline void philox_write(const philox_lanes c[4], uint32_t *words) {
    __m256i low01 = _mm256_unpacklo_epi32(c[0], c[1]), low23 = _mm256_unpacklo_epi32(c[2], c[3]);
    __m256i high01 = _mm256_unpackhi_epi32(c[0], c[1]), high23 = _mm256_unpackhi_epi32(c[2], c[3]);
    __m256i a = _mm256_unpacklo_epi64(low01, low23), b = _mm256_unpackhi_epi64(low01, low23);
    __m256i d = _mm256_unpacklo_epi64(high01, high23), e = _mm256_unpackhi_epi64(high01, high23);
    _mm256_storeu_si256((__m256i *)(void *)words, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(words + 8), _mm256_permute2x128_si256(d, e, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(words + 16), _mm256_permute2x128_si256(a, b, 0x31));
    _mm256_storeu_si256((__m256i *)(void *)(words + 24), _mm256_permute2x128_si256(d, e, 0x31));
}
#endif

#if defined(__AVX2__)

enum { PHILOX_GROUPS = 2, PHILOX_COUNTERS = PHILOX_GROUPS * PHILOX_LANES };

static inline void philox_begin(philox_lanes c[4], uint64_t counter) {
    uint32_t low[PHILOX_LANES], high[PHILOX_LANES];
    for (uint32_t i = 0; i < PHILOX_LANES; i++) {
        low[i] = (uint32_t)(counter + i);
        high[i] = (uint32_t)((counter + i) >> 32);
    }
    c[0] = philox_load(low);
    c[1] = philox_load(high);
    c[2] = c[3] = philox_all(0);
}

static inline void philox_round(philox_lanes c[4], uint32_t k0, uint32_t k1) {
    philox_lanes high0, high1;
    philox_lanes low0 = philox_products(c[0], philox_all(0xD2511F53u), &high0);
    philox_lanes low1 = philox_products(c[2], philox_all(0xCD9E8D57u), &high1);
    c[0] = philox_xor(high1, c[1], philox_all(k0));
    c[1] = low1;
    c[2] = philox_xor(high0, c[3], philox_all(k1));
    c[3] = low0;
}

/* words (PHILOX_COUNTERS,4): those of the counters from `counter` on. */
static inline void philox_words(uint64_t key, uint64_t counter, uint32_t *words) {
    philox_lanes c[PHILOX_GROUPS][4];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int group = 0; group < PHILOX_GROUPS; group++)
        philox_begin(c[group], counter + (uint64_t)(group * PHILOX_LANES));
    for (int round = 0; round < 10; round++) {
        for (int group = 0; group < PHILOX_GROUPS; group++)
            philox_round(c[group], k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int group = 0; group < PHILOX_GROUPS; group++)
        philox_write(c[group], words + (ptrdiff_t)4 * group * PHILOX_LANES);
}

#else

enum { PHILOX_COUNTERS = 1 };

static inline void philox_words(uint64_t key, uint64_t counter, uint32_t *words) { tt__philox(key, counter, words); }

#endif
#endif
