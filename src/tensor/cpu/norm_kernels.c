#include "tensor/cpu/levels.h"

#include <stddef.h>

/* Partial sums: element i goes to number i % LANES; in the end they are added as a balanced tree. */
enum { LANES = 16 };

static double lanes_sum(double *part) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            part[i] += part[i + width];
    return part[0];
}

static double loop_deviations(int64_t n, const float *x, double mean) {
    double part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double d = (double)x[i + k] - mean;
            part[k] += d * d;
        }
    for (int k = 0; i < n; i++, k++) {
        double d = (double)x[i] - mean;
        part[k] += d * d;
    }
    return lanes_sum(part);
}

/* Weights that are not given are ones, biases zeros: the cases are written out, so that each vectorises. */
static void loop_apply(int64_t n, const float *x, float mean, float rstd, const float *w, const float *b, float *y) {
    if (w && b) {
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    } else if (w) {
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd + (b ? b[i] : 0);
    }
}

/* h = g w, and the sums of h and of h (x - mean) rstd. */
static void loop_weigh(int64_t n, const float *g, const float *w, const float *x, float mean, float rstd, float *h,
                       double sums[2]) {
    double sum[LANES] = {0}, dot[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float v = g[i + k] * (w ? w[i + k] : 1);
            h[i + k] = v;
            sum[k] += (double)v;
            dot[k] += (double)v * (double)((x[i + k] - mean) * rstd);
        }
    for (int k = 0; i < n; i++, k++) {
        float v = g[i] * (w ? w[i] : 1);
        h[i] = v;
        sum[k] += (double)v;
        dot[k] += (double)v * (double)((x[i] - mean) * rstd);
    }
    sums[0] = lanes_sum(sum);
    sums[1] = lanes_sum(dot);
}

static void loop_give(int64_t n, const float *x, float mean, float rstd, float shift, float slope, float *dx) {
    for (int64_t i = 0; i < n; i++)
        dx[i] = rstd * (dx[i] - shift - (x[i] - mean) * rstd * slope);
}

/* `width` columns, at most LANES. */
static inline void strip_weights(int64_t rows, int64_t stride, int width, const float *g, const float *x,
                                 const double *mean, const double *rstd, float *dw, float *db) {
    double sum[LANES] = {0}, dot[LANES] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            double v = (double)g[r * stride + k];
            sum[k] += v;
            dot[k] += v * (((double)x[r * stride + k] - mean[r]) * rstd[r]);
        }
    for (int k = 0; k < width; k++) {
        if (dw)
            dw[k] = (float)dot[k];
        if (db)
            db[k] = (float)sum[k];
    }
}

static void loop_give_weights(int64_t rows, int64_t cols, int64_t stride, const float *g, const float *x,
                              const double *mean, const double *rstd, float *dw, float *db) {
    for (int64_t c = 0; c < cols; c += LANES) {
        float *w = dw ? dw + c : NULL, *b = db ? db + c : NULL;
        if (c + LANES <= cols)
            strip_weights(rows, stride, LANES, g + c, x + c, mean, rstd, w, b);
        else
            strip_weights(rows, stride, (int)(cols - c), g + c, x + c, mean, rstd, w, b);
    }
}

const tt__norm_kernels TT__LEVEL_NAME(tt__norm_kernels) = {
    .deviations = loop_deviations,
    .apply = loop_apply,
    .weigh = loop_weigh,
    .give = loop_give,
    .give_weights = loop_give_weights,
};
