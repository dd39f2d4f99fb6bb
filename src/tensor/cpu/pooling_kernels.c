#include "tensor/cpu/levels.h"

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
        int take = !(here <= most); /* larger, or one of them is NaN; NaN is replaced by the next NaN only */
        take = take && (here != here || most == most);
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

/* Of a and the later b: is b the larger, or NaN? */
static inline int later_wins(float a, float b) { return !(b <= a) && (b != b || a == a); }

/* a[i], b[i]: the upper, the lower row of a window. Whole windows only: n of them, side by side. */
static void loop_max_pairs(int64_t n, const float *a, const float *b, int32_t place, int32_t below, float *y,
                           int32_t *at) {
    for (int64_t i = 0; i < n; i++) {
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
