/* Elementwise reductions, compiled once for each instruction-set level. Every level does the same operations on each
 * element in the same order, so the bits are the same; each loop is its own reference. */
#include "comm/reduce/pair_kernels.h"

#include "base/dtype.h"

#include <tutti/base.h>

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

/* Buffers are equal or do not overlap, and no two of the written ones are equal, so a vector of elements may be loaded
 * before any is stored. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

/* `expression` of x (left), y (right) and, where leaves are scaled, s and t (their scales). */
#define KERNELS(name, T, expression)                                                                             \
    static void pair_##name(void *dst, const void *a, const void *b, size_t n, double scale_a, double scale_b) { \
        T *out = dst;                                                                                            \
        const T *left = a, *right = b, s = (T)scale_a, t = (T)scale_b;                                           \
        (void)s, (void)t;                                                                                        \
        ELEMENTWISE for (size_t i = 0; i < n; i++) {                                                             \
            const T x = left[i], y = right[i];                                                                   \
            out[i] = (T)(expression);                                                                            \
        }                                                                                                        \
    }                                                                                                            \
    static void two_##name(void *dst, void *dst_2, const void *a, const void *b, size_t n, double scale_a,       \
                           double scale_b) {                                                                     \
        T *out = dst, *out_2 = dst_2;                                                                            \
        const T *left = a, *right = b, s = (T)scale_a, t = (T)scale_b;                                           \
        (void)s, (void)t;                                                                                        \
        ELEMENTWISE for (size_t i = 0; i < n; i++) {                                                             \
            const T x = left[i], y = right[i];                                                                   \
            out[i] = out_2[i] = (T)(expression);                                                                 \
        }                                                                                                        \
    }

/* The smaller, or a NaN where there is one: x if it is smaller or is NaN, else y, which may be one. */
#define MIN_OF(x, y) (x < y || x != x ? x : y)
#define MAX_OF(x, y) (x > y || x != x ? x : y)

#define FLOAT_KERNELS(name, T)                                                    \
    KERNELS(sum_##name, T, x + y)                                                 \
    KERNELS(product_##name, T, x *y)                                              \
    KERNELS(min_##name, T, MIN_OF(x, y))                                          \
    KERNELS(max_##name, T, MAX_OF(x, y))                                          \
    KERNELS(scale_both_##name, T, x *s + y * t)                                   \
    KERNELS(scale_right_##name, T, x + y * t)                                     \
    static void leaf_##name(void *dst, const void *src, size_t n, double scale) { \
        T *out = dst;                                                             \
        const T *in = src, s = (T)scale;                                          \
        ELEMENTWISE for (size_t i = 0; i < n; i++) out[i] = in[i] * s;            \
    }

/* Sums and products wrap: they are made in U, the unsigned type of the same width (narrow ones: of int). */
#define INTEGER_KERNELS(name, T, U)         \
    KERNELS(sum_##name, T, (U)x + (U)y)     \
    KERNELS(product_##name, T, (U)x *(U)y)  \
    KERNELS(min_##name, T, (x < y ? x : y)) \
    KERNELS(max_##name, T, (x > y ? x : y)) \
    KERNELS(and_##name, T, x &y)            \
    KERNELS(or_##name, T, x | y)            \
    KERNELS(xor_##name, T, x ^ y)

FLOAT_KERNELS(f32, float)
FLOAT_KERNELS(f64, double)
INTEGER_KERNELS(i32, int32_t, uint32_t)
INTEGER_KERNELS(i64, int64_t, uint64_t)
INTEGER_KERNELS(u8, uint8_t, uint32_t)
INTEGER_KERNELS(i8, int8_t, uint32_t)
INTEGER_KERNELS(i16, int16_t, uint32_t)

/* A byte that is not 0 is true. */
KERNELS(and_bool, uint8_t, (x != 0) & (y != 0))
KERNELS(or_bool, uint8_t, (x != 0) | (y != 0))
KERNELS(xor_bool, uint8_t, (x != 0) ^ (y != 0))

static void leaf_bool(void *dst, const void *src, size_t n, double scale) {
    uint8_t *out = dst;
    const uint8_t *in = src;
    (void)scale;
    ELEMENTWISE for (size_t i = 0; i < n; i++) out[i] = in[i] != 0;
}

static void leaf_bf16(void *dst, const void *src, size_t n, double scale) {
    float *out = dst, s = (float)scale;
    const uint16_t *in = src;
    ELEMENTWISE for (size_t i = 0; i < n; i++) out[i] = tt__float_of_bf16(in[i]) * s;
}

static void narrow_bf16(void *dst, const void *src, size_t n) {
    uint16_t *out = dst;
    const float *in = src;
    ELEMENTWISE for (size_t i = 0; i < n; i++) out[i] = tt__bf16_of_float(in[i]);
}

/* Convert as many f16 as possible in vectors, by the instructions of this level; the rest, and all at the lowest level,
 * in software. */
static void leaf_f16(void *dst, const void *src, size_t n, double scale) {
    float *out = dst, s = (float)scale;
    const uint16_t *in = src;
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i,
                         _mm512_mul_ps(_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(in + i))),
                                       _mm512_set1_ps(s)));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))),
                                       _mm256_set1_ps(s)));
#endif
    ELEMENTWISE for (size_t k = i; k < n; k++) out[k] = tt__float_of_f16(in[k]) * s;
}

static void narrow_f16(void *dst, const void *src, size_t n) {
    uint16_t *out = dst;
    const float *in = src;
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(out + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    ELEMENTWISE for (size_t k = i; k < n; k++) out[k] = tt__f16_of_float(in[k]);
}

#define ENTRY(op, name) \
    { pair_##op##_##name, two_##op##_##name }
#define COMMON(name)                                                                                                 \
    [TT__PAIR_SUM] = ENTRY(sum, name), [TT__PAIR_PRODUCT] = ENTRY(product, name), [TT__PAIR_MIN] = ENTRY(min, name), \
    [TT__PAIR_MAX] = ENTRY(max, name)
#define FLOATS(name) \
    COMMON(name), [TT__PAIR_SCALE_BOTH] = ENTRY(scale_both, name), [TT__PAIR_SCALE_RIGHT] = ENTRY(scale_right, name)
#define INTEGERS(name) \
    COMMON(name), [TT__PAIR_AND] = ENTRY(and, name), [TT__PAIR_OR] = ENTRY(or, name), [TT__PAIR_XOR] = ENTRY(xor, name)

const tt__pair_kernels TT__LEVEL_NAME(tt__pair_kernels) = {
    .of = {[TT_F32] = {FLOATS(f32)},
           [TT_F64] = {FLOATS(f64)},
           [TT_I32] = {INTEGERS(i32)},
           [TT_I64] = {INTEGERS(i64)},
           [TT_U8] = {INTEGERS(u8)},
           [TT_I8] = {INTEGERS(i8)},
           [TT_I16] = {INTEGERS(i16)},
           [TT_BOOL] = {[TT__PAIR_SUM] = ENTRY(or, bool),
                        [TT__PAIR_PRODUCT] = ENTRY(and, bool),
                        [TT__PAIR_MIN] = ENTRY(and, bool),
                        [TT__PAIR_MAX] = ENTRY(or, bool),
                        [TT__PAIR_AND] = ENTRY(and, bool),
                        [TT__PAIR_OR] = ENTRY(or, bool),
                        [TT__PAIR_XOR] = ENTRY(xor, bool)}},
    .leaf =
        {[TT_F32] = leaf_f32, [TT_F64] = leaf_f64, [TT_F16] = leaf_f16, [TT_BF16] = leaf_bf16, [TT_BOOL] = leaf_bool},
    .narrow = {[TT_F16] = narrow_f16, [TT_BF16] = narrow_bf16}};
