/* Elementwise reductions, compiled once for each instruction-set level. Every level does the same operations on each element in the same order,
 * so the bits are the same; each loop is its own reference. */
#include "comm/pair_kernels.h"

#include <tutti/base.h>

/* Buffers are equal or do not overlap, so a vector of elements may be loaded before any is stored. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

/* `expression` of x (left), y (right) and, for averages, s (scale). */
#define KERNELS(name, T, expression)                                                           \
    static void pair_##name(void *dst, const void *a, const void *b, size_t n, double scale) { \
        T *out = dst;                                                                          \
        const T *left = a, *right = b, s = (T)scale;                                           \
        (void)s;                                                                               \
        ELEMENTWISE for (size_t i = 0; i < n; i++) {                                           \
            const T x = left[i], y = right[i];                                                 \
            out[i] = (T)(expression);                                                          \
        }                                                                                      \
    }                                                                                          \
    static void both_##name(void *a, void *b, size_t n, double scale) {                        \
        T *left = a, *right = b;                                                               \
        const T s = (T)scale;                                                                  \
        (void)s;                                                                               \
        ELEMENTWISE for (size_t i = 0; i < n; i++) {                                           \
            const T x = left[i], y = right[i];                                                 \
            left[i] = right[i] = (T)(expression);                                              \
        }                                                                                      \
    }

/* NaN wins: x if it is the one or is NaN, else y, which may be. */
#define MIN_OF(x, y) (x < y || x != x ? x : y)
#define MAX_OF(x, y) (x > y || x != x ? x : y)

#define FLOAT_KERNELS(name, T)              \
    KERNELS(sum_##name, T, x + y)           \
    KERNELS(product_##name, T, x *y)        \
    KERNELS(min_##name, T, MIN_OF(x, y))    \
    KERNELS(max_##name, T, MAX_OF(x, y))    \
    KERNELS(leaves_##name, T, x *s + y * s) \
    KERNELS(right_##name, T, x + y * s)

/* Sums and products wrap: they are made in U, the unsigned type of the same width (u8: of int). */
#define INTEGER_KERNELS(name, T, U)         \
    KERNELS(sum_##name, T, (U)x + (U)y)     \
    KERNELS(product_##name, T, (U)x *(U)y)  \
    KERNELS(min_##name, T, (x < y ? x : y)) \
    KERNELS(max_##name, T, (x > y ? x : y))

FLOAT_KERNELS(f32, float)
FLOAT_KERNELS(f64, double)
INTEGER_KERNELS(i32, int32_t, uint32_t)
INTEGER_KERNELS(i64, int64_t, uint64_t)
INTEGER_KERNELS(u8, uint8_t, uint32_t)

#define ENTRY(op, name) \
    { pair_##op##_##name, both_##op##_##name }
#define COMMON(name)                                                                                                 \
    [TT__PAIR_SUM] = ENTRY(sum, name), [TT__PAIR_PRODUCT] = ENTRY(product, name), [TT__PAIR_MIN] = ENTRY(min, name), \
    [TT__PAIR_MAX] = ENTRY(max, name)
#define AVERAGES(name) [TT__PAIR_AVG_LEAVES] = ENTRY(leaves, name), [TT__PAIR_AVG_RIGHT] = ENTRY(right, name)

const tt__pair_kernels TT__LEVEL_NAME(tt__pair_kernels) = {.of = {
                                                               [TT_F32] = {COMMON(f32), AVERAGES(f32)},
                                                               [TT_F64] = {COMMON(f64), AVERAGES(f64)},
                                                               [TT_I32] = {COMMON(i32)},
                                                               [TT_I64] = {COMMON(i64)},
                                                               [TT_U8] = {COMMON(u8)},
                                                           }};
