/* Normalisation of f32: loops over rows (tt__norm_kernels) and over channels (tt__batch_norm_kernels). */
#include "tensor/cpu/levels.h"

#include <stddef.h>

/* Partial sums: element i goes to number i % LANES; in the end they are added as a balanced tree. LANES columns are
 * summed at once. */
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

/* ---- batch_norm, one channel: n elements */

static void loop_dots(int64_t n, const float *g, const float *x, double mean, double sums[2]) {
    double sum[LANES] = {0}, dot[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            sum[k] += (double)g[i + k];
            dot[k] += (double)g[i + k] * ((double)x[i + k] - mean);
        }
    for (int k = 0; i < n; i++, k++) {
        sum[k] += (double)g[i];
        dot[k] += (double)g[i] * ((double)x[i] - mean);
    }
    sums[0] += lanes_sum(sum);
    sums[1] += lanes_sum(dot);
}

static void loop_affine(int64_t n, const float *x, const tt__channel *c, float *y) {
    float mean = c->mean, scale = c->scale, shift = c->shift;
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale + shift;
}

static void loop_give_channel(int64_t n, const float *g, const float *x, const tt__channel *c, float *dx) {
    float mean = c->mean, scale = c->scale, shift = c->shift, slope = c->slope;
    for (int64_t i = 0; i < n; i++)
        dx[i] = scale * (g[i] - shift - (x[i] - mean) * slope);
}

/* ---- a channel each column, `stride` apart; at most LANES of them */

static inline void strip_moments(int64_t rows, int64_t stride, int width, const float *x, double *mean, double *dev) {
    double sum[LANES] = {0}, squares[LANES] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++)
            sum[k] += (double)x[r * stride + k];
    for (int k = 0; k < width; k++)
        mean[k] = sum[k] / (double)rows;
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            double d = (double)x[r * stride + k] - mean[k];
            squares[k] += d * d;
        }
    for (int k = 0; k < width; k++)
        dev[k] = squares[k];
}

static void loop_column_moments(int64_t rows, int64_t stride, int width, const float *x, double *mean, double *dev) {
    if (width == LANES)
        strip_moments(rows, stride, LANES, x, mean, dev);
    else
        strip_moments(rows, stride, width, x, mean, dev);
}

static inline void strip_dots(int64_t rows, int64_t stride, int width, const float *g, const float *x,
                              const double *mean, double *sum, double *dot) {
    double s[LANES] = {0}, d[LANES] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            double v = (double)g[r * stride + k];
            s[k] += v;
            d[k] += v * ((double)x[r * stride + k] - mean[k]);
        }
    for (int k = 0; k < width; k++) {
        sum[k] = s[k];
        dot[k] = d[k];
    }
}

static void loop_column_dots(int64_t rows, int64_t stride, int width, const float *g, const float *x,
                             const double *mean, double *sum, double *dot) {
    if (width == LANES)
        strip_dots(rows, stride, LANES, g, x, mean, sum, dot);
    else
        strip_dots(rows, stride, width, g, x, mean, sum, dot);
}

static void loop_column_affine(int64_t n, const float *x, const float *mean, const float *scale, const float *shift,
                               float *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean[i]) * scale[i] + shift[i];
}

static void loop_column_give(int64_t n, const float *g, const float *x, const float *mean, const float *scale,
                             const float *shift, const float *slope, float *dx) {
    for (int64_t i = 0; i < n; i++)
        dx[i] = scale[i] * (g[i] - shift[i] - (x[i] - mean[i]) * slope[i]);
}

const tt__batch_norm_kernels TT__LEVEL_NAME(tt__batch_norm_kernels) = {
    .dots = loop_dots,
    .affine = loop_affine,
    .give = loop_give_channel,
    .column_moments = loop_column_moments,
    .column_dots = loop_column_dots,
    .column_affine = loop_column_affine,
    .column_give = loop_column_give,
};
