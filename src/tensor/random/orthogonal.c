/* Random orthogonal matrices. Let A (m,n), m >= n, have normal numbers. The one Q with A = Q R, an upper triangle R and
 * a positive diagonal of R, is uniformly distributed (Mezzadri, 2007). Computed in double by Gram and Schmidt's method,
 * twice for each column, which leaves Q orthogonal to the last bits (Giraud et al., 2005): 4 m n^2 steps. */
#include "tensor/random/random.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/ops/ops.h"

#include <math.h>

enum { DOT_PARTS = 8 };

/* The sum of a[i] b[i], in several sums so that they don't wait for each other. */
static double column_dot(const double *a, const double *b, int64_t n) {
    double part[DOT_PARTS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + DOT_PARTS <= n; i += DOT_PARTS)
        for (int k = 0; k < DOT_PARTS; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < DOT_PARTS; k++)
        sum += part[k];
    return sum;
}

/* a: n columns of m; each is freed of its parts along those before it, and gets the length 1. */
static void orthogonalise(double *a, int64_t m, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        double *v = a + j * m;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < j; k++) {
                const double *q = a + k * m;
                double along = column_dot(q, v, m);
                for (int64_t i = 0; i < m; i++)
                    v[i] -= along * q[i];
            }
        double length = sqrt(column_dot(v, v, m));
        for (int64_t i = 0; i < m; i++)
            v[i] /= length;
    }
}

/* The element (row, column) of a contiguous matrix of either type. */
static double matrix_get(const tt_tensor *x, int64_t at) {
    return x->dtype == TT_F32 ? (double)((const float *)x->data)[at] : ((const double *)x->data)[at];
}

static void matrix_set(tt_tensor *x, int64_t at, double value) {
    if (x->dtype == TT_F32)
        ((float *)x->data)[at] = (float)value;
    else
        ((double *)x->data)[at] = value;
}

/* x (rows, columns), contiguous on the host, holds normal numbers; it becomes orthogonal. */
static tt_status orthogonal_matrix(const char *who, tt_tensor *x, int64_t rows, int64_t columns, double gain) {
    bool wide = rows < columns; /* then its rows are the columns of A */
    int64_t m = wide ? columns : rows, n = wide ? rows : columns;
    double *a = tt__pool_alloc((size_t)(m * n) * sizeof *a);
    if (!a)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for %lld numbers", who, (long long)(m * n)), TT_ERR_MEMORY;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            a[wide ? r * m + c : c * m + r] = matrix_get(x, r * columns + c);
    orthogonalise(a, m, n);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            matrix_set(x, r * columns + c, gain * a[wide ? r * m + c : c * m + r]);
    tt__pool_free(a);
    return TT_OK;
}

tt_status tt__orthogonal_(const char *who, tt_tensor *x, double gain, tt_generator *generator) {
    int64_t rows = x->shape.dim[0];
    tt_tensor *drawn = tt__tensor_new(who, x->shape, x->dtype);
    tt_status status = drawn ? tt_normal_(drawn, 0, 1, generator) : tt_last_status();
    if (!status)
        status = orthogonal_matrix(who, drawn, rows, x->numel / rows, gain);
    if (!status)
        status = tt__copy_out(who, x, drawn);
    tt__abandon(drawn);
    return status;
}
