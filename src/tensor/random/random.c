/* Random tensors: the generator's distributions over any layout, truncated normal numbers, orthogonal matrices. */
#include "tensor/random/random.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"
#include "tensor/random/generator.h"
#include "tensor/shape/iter.h"

#include <inttypes.h>
#include <math.h>

/* ---- truncated normal numbers ----
 *
 * y uniform in -1..1  ->  mean + std sqrt(2) erfinv(y), within the bounds.
 *
 * erfinv: a rational approximation (G. Pavlis, 1996), made exact by two steps of Newton's method. PyTorch's AVX2 build
 * fuses the products and sums of its polynomials, and nothing else; this code does the same, bit for bit. */

enum { TRUNCATE_BLOCK = 4096 };

static const double sqrt_pi = 1.77245385090551602730; /* sqrt(M_PI) */

/* The part of a normal distribution that is below x. */
static double normal_cdf(double x) { return (1 + erf(x / sqrt(2))) / 2; }

/* What truncated numbers are made from: uniform ones in *from..*to, inside -1..1, the probabilities of the bounds. */
static void truncation_range(const tt__truncation *t, double *from, double *to) {
    *from = 2 * normal_cdf((t->low - t->mean) / t->std) - 1;
    *to = 2 * normal_cdf((t->high - t->mean) / t->std) - 1;
}

typedef struct truncate_job {
    void *data;
    const tt__truncation *t;
} truncate_job;

/* The functions of one element type; f: the suffix of its functions in math.h. */
#define TRUNCATE(T, name, fma, fabs, sqrt, log, erf, exp, copysign)                                                    \
    static T erfinv_middle_##name(T y) {                                                                               \
        T z = y * y;                                                                                                   \
        T above = fma(fma(fma((T)-0.140543331, z, (T)0.914624893), z, (T)-1.645349621), z, (T)0.886226899);            \
        T below = fma(fma(fma(fma((T)0.012229801, z, (T)-0.329097515), z, (T)1.442710462), z, (T)-2.118377725), z, 1); \
        return y * above / below;                                                                                      \
    }                                                                                                                  \
    static T erfinv_tail_##name(T y) {                                                                                 \
        T z = sqrt(-log((1 - fabs(y)) / 2));                                                                           \
        T above = fma(fma(fma((T)1.641345311, z, (T)3.429567803), z, (T)-1.624906493), z, (T)-1.970840454);            \
        T below = fma(fma((T)1.637067800, z, (T)3.543889200), z, 1);                                                   \
        return copysign(above, y) / below;                                                                             \
    }                                                                                                                  \
    static T erfinv_##name(T y) {                                                                                      \
        if (fabs(y) >= 1)                                                                                              \
            return copysign((T)INFINITY, y);                                                                           \
        T x = fabs(y) <= (T)0.7 ? erfinv_middle_##name(y) : erfinv_tail_##name(y);                                     \
        for (int step = 0; step < 2; step++)                                                                           \
            x = x - (erf(x) - y) / ((T)2 / (T)sqrt_pi * exp(-x * x));                                                  \
        return x;                                                                                                      \
    }                                                                                                                  \
    static void truncate_some_##name(void *user, int64_t begin, int64_t end) {                                         \
        const truncate_job *job = user;                                                                                \
        T *data = job->data;                                                                                           \
        T scale = (T)(job->t->std * 1.41421356237309504880), mean = (T)job->t->mean;                                   \
        T low = (T)job->t->low, high = (T)job->t->high;                                                                \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            T x = erfinv_##name(data[i]) * scale;                                                                      \
            x = x + mean;                                                                                              \
            x = x < low ? low : x;                                                                                     \
            data[i] = x > high ? high : x;                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void truncate_##name(T *data, int64_t n, const tt__truncation *t) {                                         \
        tt__parallel_for(n, TRUNCATE_BLOCK, truncate_some_##name, &(truncate_job){data, t});                           \
    }

TRUNCATE(float, f32, fmaf, fabsf, sqrtf, logf, erff, expf, copysignf)
TRUNCATE(double, f64, fma, fabs, sqrt, log, erf, exp, copysign)

/* ---- filling ---- */

/* The distribution to draw from. */
typedef struct distribution {
    const char *who;
    bool normal;
    double a, b; /* low and high, or mean and standard deviation */
    tt_generator *generator;
    const tt__truncation *cut; /* what uniform numbers become; NULL: they stay */
} distribution;

/* Convert n adjacent numbers that were drawn to the distribution that was asked for. */
static void truncate_drawn(void *data, int64_t n, bool f32, const distribution *d) {
    if (d->cut && f32)
        truncate_f32(data, n, d->cut);
    else if (d->cut)
        truncate_f64(data, n, d->cut);
}

static void fill_contiguous(tt_tensor *x, const distribution *d) {
    bool f32 = x->dtype == TT_F32;
    if (d->normal && f32)
        tt__generator_normal_f32(d->generator, x->data, x->numel, d->a, d->b);
    else if (d->normal)
        tt__generator_normal_f64(d->generator, x->data, x->numel, d->a, d->b);
    else if (f32)
        tt__generator_uniform_f32(d->generator, x->data, x->numel, (float)d->a, (float)d->b);
    else
        tt__generator_uniform_f64(d->generator, x->data, x->numel, d->a, d->b);
    truncate_drawn(x->data, x->numel, f32, d);
}

static void fill_one(char *at, tt_dtype dtype, const distribution *d) {
    if (d->normal) {
        double value = tt__generator_normal(d->generator, d->a, d->b);
        if (dtype == TT_F32)
            *(float *)(void *)at = (float)value;
        else
            *(double *)(void *)at = value;
    } else if (dtype == TT_F32) {
        tt__generator_uniform_f32(d->generator, (float *)(void *)at, 1, (float)d->a, (float)d->b);
    } else {
        tt__generator_uniform_f64(d->generator, (double *)(void *)at, 1, d->a, d->b);
    }
    truncate_drawn(at, 1, dtype == TT_F32, d);
}

/* Fill a tensor with strides as torch does: element by element in the order of memory, whatever the order of
 * dimensions. */
static void fill_strided(tt_tensor *x, const distribution *d) {
    int64_t size = (int64_t)tt_dtype_size(x->dtype);
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            fill_one(it.p[0] + i * it.step[0] * size, x->dtype, d);
}

/* Fill a tensor on another device: draw on the host, in the order of memory there, and copy. */
static tt_status fill_elsewhere(tt_tensor *x, const distribution *d) {
    tt_tensor *here = tt__tensor_new_on(d->who, &tt__cpu_device, x->shape, x->dtype, x->stride);
    if (!here)
        return tt_last_status();
    if (here->contiguous)
        fill_contiguous(here, d);
    else
        fill_strided(here, d);
    tt_status status = tt__copy_out(d->who, x, here);
    tt__abandon(here);
    return status;
}

static tt_status random_fill(tt_tensor *x, const distribution *d) {
    if (!x)
        return tt__tensor_first_error(d->who);
    if (!tt__tensor_check(d->who, x))
        return TT_ERR_STATE;
    if (x->dtype != TT_F32 && x->dtype != TT_F64) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected f32 or f64, got %s; tt_to() converts", d->who, TT__DESCRIBE(x));
        return TT_ERR_DTYPE;
    }
    TT__TRY(tt__tensor_check_writable(d->who, x));
    tt__storage_touch(x->storage);
    if (!tt__device_is_host(tt__device_of(x)))
        return fill_elsewhere(x, d);
    if (x->contiguous)
        fill_contiguous(x, d);
    else
        fill_strided(x, d);
    return TT_OK;
}

/* Is low..high a range in the type that is drawn? Two finite f32 may be further apart than any f32. */
static bool is_range(tt_dtype dtype, double low, double high) {
    return low <= high && isfinite(dtype == TT_F32 ? (float)high - (float)low : high - low);
}

tt_status tt_uniform_(tt_tensor *x, double low, double high, tt_generator *generator) {
    if (!is_range(tt_tensor_dtype(x), low, high)) {
        tt__tensor_fail(TT_ERR_INVALID, "tt_uniform_: expected low <= high and a finite difference, got %g and %g", low,
                        high);
        return TT_ERR_INVALID;
    }
    return random_fill(x, &(distribution){"tt_uniform_", false, low, high, generator, NULL});
}

tt_status tt_normal_(tt_tensor *x, double mean, double std, tt_generator *generator) {
    if (!(std >= 0)) {
        tt__tensor_fail(TT_ERR_INVALID, "tt_normal_: expected std >= 0, got %g", std);
        return TT_ERR_INVALID;
    }
    return random_fill(x, &(distribution){"tt_normal_", true, mean, std, generator, NULL});
}

tt_status tt__trunc_normal_(const char *who, tt_tensor *x, const tt__truncation *t, tt_generator *generator) {
    double from, to;
    truncation_range(t, &from, &to);
    return random_fill(x, &(distribution){who, false, from, to, generator, t});
}

static tt_tensor *random_filled(tt_shape shape, const distribution *d) {
    tt_tensor *x = tt__tensor_new(d->who, shape, TT_F32);
    if (x)
        fill_contiguous(x, d);
    return x;
}

tt_tensor *tt_rand(tt_shape shape, tt_generator *generator) {
    return random_filled(shape, &(distribution){"tt_rand", false, 0, 1, generator, NULL});
}

tt_tensor *tt_randn(tt_shape shape, tt_generator *generator) {
    return random_filled(shape, &(distribution){"tt_randn", true, 0, 1, generator, NULL});
}

tt_tensor *tt_randint(int64_t low, int64_t high, tt_shape shape, tt_generator *generator) {
    if (low >= high)
        return tt__tensor_fail(TT_ERR_INVALID, "tt_randint: expected low < high, got %" PRId64 " and %" PRId64, low,
                               high);
    tt_tensor *x = tt__tensor_new("tt_randint", shape, TT_I64);
    if (x)
        tt__generator_randint(generator, x->data, x->numel, low, (uint64_t)high - (uint64_t)low);
    return x;
}

/* ---- orthogonal matrices ----
 *
 * Let A (m,n), m >= n, have normal numbers. The one Q with A = Q R, an upper triangle R and a positive diagonal of R,
 * is uniformly distributed (Mezzadri, 2007). Computed in double by Gram and Schmidt's method, twice for each column,
 * which leaves Q orthogonal to the last bits (Giraud et al., 2005): 4 m n^2 steps. */

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
