/* Gram and Schmidt's method for PowerSGD: see comm_hook.h. */
#include "parallel/hooks/comm_hook.h"

#include <math.h>

enum { PARTS = 8 };

/* The dot product, in several independent sums. */
static double dot_rows(const float *a, const float *b, int64_t n) {
    double part[PARTS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + PARTS <= n; i += PARTS)
        for (int k = 0; k < PARTS; k++)
            part[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (int k = 0; k < PARTS; k++)
        sum += part[k];
    return sum;
}

/* Subtract from v its components along the `before` orthonormal rows at a. */
static void take_parts_away(float *v, const float *a, int64_t before, int64_t n) {
    for (int64_t k = 0; k < before; k++) {
        const float *q = a + k * n;
        double along = dot_rows(q, v, n);
        for (int64_t i = 0; i < n; i++)
            v[i] = (float)((double)v[i] - along * (double)q[i]);
    }
}

static void divide_row(float *v, int64_t n, double length) {
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((double)v[i] / length);
}

/* Make v a unit vector orthogonal to the rows before it. Of the n axes, each without its components along these rows,
 * the squared lengths sum to n - before; so one is at least the mean. */
static void make_unit_row(float *v, const float *a, int64_t before, int64_t n) {
    double enough = 0.5 * (double)(n - before) / (double)n, square = 0;
    for (int64_t at = before; square < enough && at < before + n; at++) {
        for (int64_t i = 0; i < n; i++)
            v[i] = i == at % n;
        for (int pass = 0; pass < 2; pass++)
            take_parts_away(v, a, before, n);
        square = dot_rows(v, v, n);
    }
    divide_row(v, n, sqrt(square));
}

/* A row that loses all but this share of its length depends on those before it, as far as f32 can tell. */
static const double dependent = 1e-6;

static void orthonormal_row(float *v, const float *a, int64_t before, int64_t n) {
    double length = sqrt(dot_rows(v, v, n));
    if (isnan(length))
        return;
    if (length > 0 && isfinite(length))
        divide_row(v, n, length); /* so that squares neither vanish nor overflow */
    for (int pass = 0; pass < 2; pass++) {
        take_parts_away(v, a, before, n);
        double left = sqrt(dot_rows(v, v, n));
        if (left < dependent || length == 0) {
            make_unit_row(v, a, before, n);
            return;
        }
        divide_row(v, n, left);
    }
}

void tt__orthonormal_rows(float *a, int64_t rank, int64_t n, double epsilon) {
    for (int64_t j = 0; j < rank; j++) {
        float *v = a + j * n;
        double length = epsilon > 0 ? sqrt(dot_rows(v, v, n)) : 0;
        if (epsilon <= 0 || length == 0) {
            orthonormal_row(v, a, j, n);
            continue;
        }
        divide_row(v, n, length + epsilon);
        for (int64_t k = j + 1; k < rank; k++) { /* as in PyTorch, although v is no unit vector */
            double along = dot_rows(v, a + k * n, n);
            for (int64_t i = 0; i < n; i++)
                a[k * n + i] = (float)((double)a[k * n + i] - along * (double)v[i]);
        }
    }
}
