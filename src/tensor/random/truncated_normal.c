/* y uniform in -1..1  ->  mean + std sqrt(2) erfinv(y), within the bounds.
 *
 * erfinv: a rational approximation (G. Pavlis, 1996), made exact by two steps of Newton's method. PyTorch's AVX2 build
 * fuses the products and sums of its polynomials, and nothing else; so does this. */
#include "tensor/random/truncated_normal.h"

#include "tensor/device/parallel.h"

#include <math.h>

enum { TRUNCATE_BLOCK = 4096 };

static const double sqrt_pi = 1.77245385090551602730; /* sqrt(M_PI) */

/* The part of a normal distribution that is below x. */
static double normal_cdf(double x) { return (1 + erf(x / sqrt(2))) / 2; }

void tt__truncation_range(const tt__truncation *t, double *from, double *to) {
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
    void tt__truncate_##name(T *data, int64_t n, const tt__truncation *t) {                                            \
        tt__parallel_for(n, TRUNCATE_BLOCK, truncate_some_##name, &(truncate_job){data, t});                           \
    }

TRUNCATE(float, f32, fmaf, fabsf, sqrtf, logf, erff, expf, copysignf)
TRUNCATE(double, f64, fma, fabs, sqrt, log, erf, exp, copysign)
