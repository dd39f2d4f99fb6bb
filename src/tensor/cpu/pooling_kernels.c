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

const tt__pooling_kernels TT__LEVEL_NAME(tt__pooling_kernels) = {
    .max_first = loop_max_first,
    .max_next = loop_max_next,
    .max_give = loop_max_give,
};
