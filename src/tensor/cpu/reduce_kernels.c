/* Sums of f32, in double. */
#include "tensor/cpu/levels.h"

/* Partial sums: element i goes to number i % LANES; in the end they are added as a balanced tree. */
enum { LANES = 32 };

static double sum_tree(double *part) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            part[i] += part[i + width];
    return part[0];
}

static double loop_sum(int64_t n, const float *x) {
    double part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] += (double)x[i + k];
    for (int k = 0; i < n; i++, k++)
        part[k] += (double)x[i];
    return sum_tree(part);
}

static double square_diff(float a, float b) {
    double d = (double)(a - b); /* rounded to f32, as the difference is in PyTorch */
    return d * d;
}

static double loop_sum_square_diff(int64_t n, const float *a, const float *b) {
    double part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] += square_diff(a[i + k], b[i + k]);
    for (int k = 0; i < n; i++, k++)
        part[k] += square_diff(a[i], b[i]);
    return sum_tree(part);
}

/* Sum `width` columns (at most LANES) from x on, row after row. */
static inline void sum_strip(int64_t rows, int64_t stride, int width, const float *x, double factor, float *y) {
    double part[LANES] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++)
            part[k] += (double)x[r * stride + k];
    for (int k = 0; k < width; k++)
        y[k] = (float)(part[k] * factor);
}

static void loop_sum_rows(int64_t rows, int64_t cols, int64_t stride, const float *x, double factor, float *y) {
    int64_t c = 0;
    for (; c + LANES <= cols; c += LANES)
        sum_strip(rows, stride, LANES, x + c, factor, y + c);
    if (c < cols)
        sum_strip(rows, stride, (int)(cols - c), x + c, factor, y + c);
}

const tt__reduce_kernels TT__LEVEL_NAME(tt__reduce_kernels) = {
    .sum = loop_sum,
    .sum_square_diff = loop_sum_square_diff,
    .sum_rows = loop_sum_rows,
};
