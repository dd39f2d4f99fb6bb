/* The words of many counters of Philox at once, for loops that draw a number for each element. */
#ifndef TT_TENSOR_CPU_PHILOX_WORDS_H
#define TT_TENSOR_CPU_PHILOX_WORDS_H

#include "base/philox.h"

#if defined(__AVX2__)
#include <immintrin.h>

/* x * factor, lane by lane: the lower and the upper halves of the products. */
static inline __m256i philox_products(__m256i x, __m256i factor, __m256i *high) {
    __m256i even = _mm256_mul_epu32(x, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

/* Write c[0][i], c[1][i], c[2][i], c[3][i] for i = 0, 1, ... 7 in this order. */
static inline void philox_write(const __m256i c[4], uint32_t *words) {
    __m256i low01 = _mm256_unpacklo_epi32(c[0], c[1]), low23 = _mm256_unpacklo_epi32(c[2], c[3]);
    __m256i high01 = _mm256_unpackhi_epi32(c[0], c[1]), high23 = _mm256_unpackhi_epi32(c[2], c[3]);
    __m256i a = _mm256_unpacklo_epi64(low01, low23), b = _mm256_unpackhi_epi64(low01, low23);
    __m256i d = _mm256_unpacklo_epi64(high01, high23), e = _mm256_unpackhi_epi64(high01, high23);
    _mm256_storeu_si256((__m256i *)(void *)words, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(words + 8), _mm256_permute2x128_si256(d, e, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(words + 16), _mm256_permute2x128_si256(a, b, 0x31));
    _mm256_storeu_si256((__m256i *)(void *)(words + 24), _mm256_permute2x128_si256(d, e, 0x31));
}

enum { PHILOX_COUNTERS = 8 };

/* words (8,4): those of counters `counter` .. `counter` + 7. */
static inline void philox_words(uint64_t key, uint64_t counter, uint32_t *words) {
    const __m256i first = _mm256_set1_epi32((int)0xD2511F53u), second = _mm256_set1_epi32((int)0xCD9E8D57u);
    uint32_t low[PHILOX_COUNTERS], high[PHILOX_COUNTERS];
    for (uint32_t i = 0; i < PHILOX_COUNTERS; i++) {
        low[i] = (uint32_t)(counter + i);
        high[i] = (uint32_t)((counter + i) >> 32);
    }
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    __m256i c[4] = {_mm256_loadu_si256((const __m256i *)(const void *)low),
                    _mm256_loadu_si256((const __m256i *)(const void *)high), _mm256_setzero_si256(),
                    _mm256_setzero_si256()};
    for (int round = 0; round < 10; round++) {
        __m256i high0, high1;
        __m256i low0 = philox_products(c[0], first, &high0), low1 = philox_products(c[2], second, &high1);
        c[0] = _mm256_xor_si256(_mm256_xor_si256(high1, c[1]), _mm256_set1_epi32((int)k0));
        c[1] = low1;
        c[2] = _mm256_xor_si256(_mm256_xor_si256(high0, c[3]), _mm256_set1_epi32((int)k1));
        c[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    philox_write(c, words);
}

#else

enum { PHILOX_COUNTERS = 1 };

static inline void philox_words(uint64_t key, uint64_t counter, uint32_t *words) { tt__philox(key, counter, words); }

#endif
#endif
