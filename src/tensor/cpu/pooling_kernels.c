/* Max pooling of f32: loops over channels, or over windows side by side. */
#include "tensor/cpu/levels.h"

/* Of a and the later b: is b the larger, or NaN? NaN is replaced by the next NaN only. */
static inline int later_wins(float a, float b) { return !(b <= a) && (b != b || a == a); }

static void loop_max_first(int64_t n, const float *x, int32_t place, float *y, int32_t *at) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i];
        at[i] = place;
    }
}

static void loop_max_next(int64_t n, const float *x, int32_t place, float *y, int32_t *at) {
    for (int64_t i = 0; i < n; i++) {
        float here = x[i], most = y[i];
        int32_t old = at[i];
        int take = later_wins(most, here);
        y[i] = take ? here : most;
        at[i] = take ? place : old;
    }
}

static void loop_max_give(int64_t n, const int32_t *at, int32_t place, const float *g, float *dx) {
    for (int64_t i = 0; i < n; i++) {
        float v = g[i];
        dx[i] += at[i] == place ? v : 0;
    }
}

#if defined(__AVX512F__)
#include <immintrin.h>

static inline __mmask16 lanes_later_win(__m512 a, __m512 b) {
    __mmask16 b_is_nan = _mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q), a_is_number = _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q);
    return _mm512_cmp_ps_mask(b, a, _CMP_NLE_UQ) & (b_is_nan | a_is_number);
}

/* The larger of each two neighbours of a row: `count` pairs, up to 16. *right: those where it is the later one. */
static inline __m512 larger_of_pairs(int64_t count, const float *row, __mmask16 *right) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    uint32_t there = UINT32_MAX >> (32 - 2 * count);
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)there, row);
    __m512 high = _mm512_maskz_loadu_ps((__mmask16)(there >> 16), row + 16);
    __m512 first = _mm512_permutex2var_ps(low, even, high);
    __m512 second = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
    *right = lanes_later_win(first, second);
    return _mm512_mask_blend_ps(*right, first, second);
}

/* Rows are often shorter than 16 windows, which a vectorised loop would take one by one. */
static inline void max_pairs_16(int64_t count, const float *a, const float *b, int32_t place, int32_t below, float *y,
                                int32_t *at) {
    const __m512i steps = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __mmask16 right, right_below, there = (__mmask16)(0xFFFFu >> (16 - count));
    __m512 most = larger_of_pairs(count, a, &right), most_below = larger_of_pairs(count, b, &right_below);
    __mmask16 lower = lanes_later_win(most, most_below);
    __m512i here = _mm512_add_epi32(steps, _mm512_set1_epi32(place)), one = _mm512_set1_epi32(1);
    here = _mm512_mask_add_epi32(here, lower, here, _mm512_set1_epi32(below));
    here = _mm512_mask_add_epi32(here, (right & ~lower) | (right_below & lower), here, one);
    _mm512_mask_storeu_ps(y, there, _mm512_mask_blend_ps(lower, most, most_below));
    _mm512_mask_storeu_epi32(at, there, here);
}
#endif

/* a[i], b[i]: the upper, the lower row of a window. Whole windows only: n of them, side by side. */
static void loop_max_pairs(int64_t n, const float *a, const float *b, int32_t place, int32_t below, float *y,
                           int32_t *at) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i < n; i += 16)
        max_pairs_16(n - i < 16 ? n - i : 16, a + 2 * i, b + 2 * i, place + 2 * (int32_t)i, below, y + i, at + i);
#endif
    for (; i < n; i++) {
        float a0 = a[2 * i], a1 = a[2 * i + 1], b0 = b[2 * i], b1 = b[2 * i + 1];
        int32_t here = place + 2 * (int32_t)i;
        int right = later_wins(a0, a1), right_below = later_wins(b0, b1);
        float most = right ? a1 : a0, most_below = right_below ? b1 : b0;
        int lower = later_wins(most, most_below);
        int32_t upper_at = here + right, lower_at = here + below + right_below;
        y[i] = lower ? most_below : most;
        at[i] = lower ? lower_at : upper_at;
    }
}

const tt__pooling_kernels TT__LEVEL_NAME(tt__pooling_kernels) = {
    .max_first = loop_max_first,
    .max_next = loop_max_next,
    .max_give = loop_max_give,
    .max_pairs = loop_max_pairs,
};
