/* The f32 kernels: every instruction-set level gives the same bits, and they are close to plain loops in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tensor/cpu/levels.h"

enum { N = 131 }; /* several vectors and a rest at every level */

static float a[2 * N], b[2 * N];

static int fill(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N; i++) {
        a[i] = (float)((i * 37 + 11) % 101) / 17.0f - 2.9f;
        b[i] = (float)((i * 53 + 29) % 103) / 19.0f - 2.7f;
    }
    a[5] = -0.0f;
    return 0;
}

#if defined(__x86_64__)
static const tt__elementwise_kernels *const elementwise[] = {
    &tt__elementwise_kernels_base, &tt__elementwise_kernels_avx2, &tt__elementwise_kernels_avx512};
static const tt__reduce_kernels *const reduce[] = {&tt__reduce_kernels_base, &tt__reduce_kernels_avx2,
                                                   &tt__reduce_kernels_avx512};
static const tt__softmax_kernels *const softmax[] = {&tt__softmax_kernels_base, &tt__softmax_kernels_avx2,
                                                     &tt__softmax_kernels_avx512};
static const tt__batch_norm_kernels *const batch[] = {&tt__batch_norm_kernels_base, &tt__batch_norm_kernels_avx2,
                                                      &tt__batch_norm_kernels_avx512};
static const tt__norm_kernels *const norm[] = {&tt__norm_kernels_base, &tt__norm_kernels_avx2,
                                               &tt__norm_kernels_avx512};
static const tt__pooling_kernels *const pooling[] = {&tt__pooling_kernels_base, &tt__pooling_kernels_avx2,
                                                     &tt__pooling_kernels_avx512};
static int levels(void) { return (int)tt__cpu_level_get() + 1; }
#else
static const tt__elementwise_kernels *const elementwise[] = {&tt__elementwise_kernels_base};
static const tt__reduce_kernels *const reduce[] = {&tt__reduce_kernels_base};
static const tt__softmax_kernels *const softmax[] = {&tt__softmax_kernels_base};
static const tt__batch_norm_kernels *const batch[] = {&tt__batch_norm_kernels_base};
static const tt__norm_kernels *const norm[] = {&tt__norm_kernels_base};
static const tt__pooling_kernels *const pooling[] = {&tt__pooling_kernels_base};
static int levels(void) { return 1; }
#endif

/* Everything level l computes from a and b with n elements, one after the other; returns how many. */
static int all_results(int l, int n, float *out) {
    const tt__elementwise_kernels *e = elementwise[l];
    float *y = out;
    void (*const binary[])(int64_t, const float *, int64_t, const float *, int64_t, float *) = {e->add, e->sub, e->mul};
    static const int steps[][2] = {{1, 1}, {1, 0}, {0, 1}, {0, 0}};
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < 4; s++, y += n)
            binary[k](n, a, steps[s][0], b, steps[s][1], y);
    binary[0](n / 3, a, 3, b, 2, y), y += n / 3;
    e->scale(n, a, 0.37f, y), y += n;
    e->relu_backward(n, a, b, y), y += n;
    e->diff(n, a, b, 0.37f, y), y += n;
    softmax[l]->exp_scale(n, a, (tt__sum_exp){2.8f, 1.3f}, 0.37f, y), y += n;
    softmax[l]->log_softmax_backward(n, a, b, 1.5f, y), y += n;
    softmax[l]->softmax_backward(n, a, b, y), y += n;
    reduce[l]->sum_rows(1 + N / n, n, n, n < N ? a : b, 0.37, y), y += n;
    e->relu(n, a, y), y += n;
    softmax[l]->shift(n, a, 1.2f, 0.5f, y), y += n;
    tt__sum_exp s = softmax[l]->sum_exp(n, a);
    *y++ = s.max;
    *y++ = s.sum;
    *y++ = (float)reduce[l]->sum(n, a);
    *y++ = (float)reduce[l]->sum_square_diff(n, a, b);
    return (int)(y - out);
}

/* The same for batch_norm. */
static int batch_results(int l, int n, float *out) {
    const tt__channel c = {0.25f, 1.5f, 0.75f, -0.5f};
    const tt__batch_norm_kernels *k = batch[l];
    double one[16], other[16], sums[2] = {0, 0};
    int width = n < 16 ? n : 16;
    float *y = out;
    k->dots(n, a, b, 0.25, sums);
    *y++ = (float)sums[0];
    *y++ = (float)sums[1];
    k->affine(n, a, &c, y), y += n;
    k->give(n, a, b, &c, y), y += n;
    k->column_affine(n, a, b, a + 1, b + 1, y), y += n;
    k->column_give(n, a, b, a + 1, b + 1, a + 2, b + 2, y), y += n;
    k->column_moments(3, n, width, a, one, other);
    for (int i = 0; i < width; i++, y += 2)
        y[0] = (float)one[i], y[1] = (float)other[i];
    k->column_dots(3, n, width, b, a, one, other, one);
    for (int i = 0; i < width; i++, y += 2)
        y[0] = (float)one[i], y[1] = (float)other[i];
    return (int)(y - out);
}

/* The same for rows that are normalised, and for maxima and their places. */
static int family_results(int l, int n, float *out) {
    const float *const weights[][2] = {{b, a}, {b, NULL}, {NULL, NULL}, {NULL, b}};
    static const double mean[3] = {0.25, -1, 0.5}, rstd[3] = {1.5, 0.75, 2};
    static int32_t at[N];
    float *y = out;
    double sums[2];
    *y++ = (float)norm[l]->deviations(n, a, 0.25);
    for (int k = 0; k < 4; k++, y += n)
        norm[l]->apply(n, a, 0.25f, 1.5f, weights[k][0], weights[k][1], y);
    for (int k = 0; k < 2; k++, y += n) {
        norm[l]->weigh(n, a, weights[2 * k][0], b, 0.25f, 1.5f, y, sums);
        norm[l]->give(n, b, 0.25f, 1.5f, (float)sums[0], (float)sums[1], y);
    }
    norm[l]->give_weights(3, n, n, a, b, mean, rstd, y, y + n), y += 2 * n;
    pooling[l]->max_first(n, a, 7, y, at);
    pooling[l]->max_next(n, b, 8, y, at), y += n;
    memset(y, 0, (size_t)n * sizeof *y);
    pooling[l]->max_give(n, at, 8, b, y), y += n;
    pooling[l]->max_pairs(n / 2, a, b, 3, 100, y, at), y += n / 2;
    for (int i = 0; i < n / 2; i++)
        *y++ = (float)at[i];
    return (int)(y - out);
}

static void levels_agree(void **state) {
    (void)state;
    static float base[32 * N], other[32 * N];
    for (int n = 1; n <= N / 2; n++) { /* sum_rows reads 1 + N / n rows of n: at most 2 N */
        int count = all_results(0, n, base);
        for (int l = 1; l < levels(); l++) {
            assert_int_equal(all_results(l, n, other), count);
            assert_memory_equal(other, base, (size_t)count * sizeof(float));
        }
        count = batch_results(0, n, base);
        for (int l = 1; l < levels(); l++) {
            assert_int_equal(batch_results(l, n, other), count);
            assert_memory_equal(other, base, (size_t)count * sizeof(float));
        }
        count = family_results(0, n, base);
        for (int l = 1; l < levels(); l++) {
            assert_int_equal(family_results(l, n, other), count);
            assert_memory_equal(other, base, (size_t)count * sizeof(float));
        }
    }
}

static void exponentials_are_close(void **state) {
    (void)state;
    for (int l = 0; l < levels(); l++)
        for (double x = -87; x < 0.7; x += 0.0371) {
            float in = (float)x, out;
            softmax[l]->exp_scale(1, &in, (tt__sum_exp){0, 1}, 1, &out);
            double want = exp((double)in);
            assert_true(fabs((double)out - want) <= 1.5e-7 * want);
        }
    const float edges[] = {-INFINITY, -1000, -88, 0, NAN};
    float out[5];
    softmax[0]->exp_scale(5, edges, (tt__sum_exp){0, 1}, 1, out);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 1 && isnan(out[4]));
}

static void sums_are_rounded_once(void **state) {
    (void)state;
    static float many[100003];
    for (int i = 0; i < 100003; i++)
        many[i] = 0.1f;
    for (int l = 0; l < levels(); l++)
        assert_true((float)reduce[l]->sum(100003, many) == (float)(100003 * (double)0.1f));
    float one = 0, rows[200];
    for (int i = 0; i < 200; i++)
        rows[i] = i % 2 ? -1e8f : 1e8f + 8;
    for (int l = 0; l < levels(); l++) {
        reduce[l]->sum_rows(200, 1, 1, rows, 1, &one);
        assert_true(one == 800);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(exponentials_are_close),
        cmocka_unit_test(sums_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
