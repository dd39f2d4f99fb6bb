/* Formulas in f32: every instruction-set level gives the same bits, and functions are within a few units in the last
 * place of what they are in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tensor/cpu/levels.h"

enum { N = 131 }; /* several vectors and a rest at every level */

#if defined(__x86_64__)
static const tt__pointwise_kernels *const level[] = {&tt__pointwise_kernels_base, &tt__pointwise_kernels_avx2,
                                                     &tt__pointwise_kernels_avx512};
static int levels(void) { return (int)tt__cpu_level_get() + 1; }
#else
static const tt__pointwise_kernels *const level[] = {&tt__pointwise_kernels_base};
static int levels(void) { return 1; }
#endif

static float a[3 * N], b[3 * N];

static int fill(void **state) {
    (void)state;
    for (int i = 0; i < 3 * N; i++) {
        a[i] = (float)((i * 37 + 11) % 101) / 7.0f - 6.9f;
        b[i] = (float)((i * 53 + 29) % 103) / 9.0f - 5.7f;
    }
    a[5] = -0.0f;
    a[7] = INFINITY;
    a[8] = 1e-42f;
    return 0;
}

/* Everything one level computes with n elements; returns how many numbers that is. NaN has one pattern here. */
static int results_of(const tt__pointwise_kernels *k, int n, float *out) {
    static const int steps[][2] = {{1, 1}, {1, 0}, {0, 1}, {3, 2}};
    float *y = out;
    for (int op = 0; op < TT__UNARY_OPS; op++) {
        if (!k->unary[op])
            continue;
        k->unary[op](n, a, -0.37f, 2.5f, y), y += n;
        k->unary_backward[op](n, a, b, -0.37f, 2.5f, y), y += n;
    }
    for (int op = 0; op < TT__BINARY_OPS; op++)
        for (int s = 0; s < 4 && k->binary[op]; s++) {
            k->binary[op](n, a, steps[s][0], b, steps[s][1], 0.7f, y), y += n;
            for (int input = 0; input < 2; input++, y += n)
                k->binary_backward[input][op](n, a, steps[s][0], b, steps[s][1], b, steps[s][1], 0.7f, y);
        }
    k->dropout(0, n, a, 0x0123456789abcdef, 1U << 31, 2, y), y += n;
    for (float *p = out; p < y; p++)
        *p = *p != *p ? (float)NAN : *p;
    return (int)(y - out);
}

static void levels_agree(void **state) {
    (void)state;
    static float base[160 * N], other[160 * N];
    for (int n = 1; n <= N; n++) {
        int count = results_of(level[0], n, base);
        assert_in_range(count, n, 160 * N);
        for (int l = 1; l < levels(); l++) {
            assert_int_equal(results_of(level[l], n, other), count);
            assert_memory_equal(other, base, (size_t)count * sizeof(float));
        }
    }
}

/* ---- against the C library's, in double */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x / (1 + exp(-x)); }
static double gelu(double x) { return 0.5 * x * erfc(-x * sqrt(0.5)); }

/* The worst error of f over low..high, in units of the last place of the larger of the result and `floor`. */
static double worst_error(tt__unary_op op, double (*f)(double), float low, float high, double floor) {
    enum { STEPS = 200003 };
    double worst = 0;
    for (int i = 0; i <= STEPS; i++) {
        float x = low + (high - low) * (float)i / STEPS, y;
        tt__pointwise()->unary[op](1, &x, 0, 0, &y);
        double want = f((double)x), size = fmax(fabs(want), fmax(floor, 0x1p-149));
        double error = fabs((double)y - want) / (ldexp(1, ilogb(size) - 23));
        worst = error > worst || error != error ? error : worst;
    }
    return worst;
}

static void functions_are_close(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tt__unary_op op;
        double (*f)(double);
        float low, high;
        double floor; /* below it the error is absolute */
        double limit;
    } cases[] = {
        {"exp", TT__EXP, exp, -87, 88, 0, 2},
        {"exp of small numbers", TT__EXP, exp, -103, -87, 1.2e-38, 2},
        {"log", TT__LOG, log, 1e-30f, 3, 0x1p-3, 2},
        {"log of large numbers", TT__LOG, log, 3, 1e30f, 0, 2},
        {"tanh", TT__TANH, tanh, -9, 9, 0, 3},
        {"sigmoid", TT__SIGMOID, sigmoid, -80, 80, 0, 3},
        {"silu", TT__SILU, silu, -80, 80, 0, 4},
        {"gelu", TT__GELU, gelu, 0, 9, 0, 4},
        {"gelu below 0", TT__GELU, gelu, -9, 0, 0.0625, 4}, /* e^(-x^2/2) loses digits with x */
        {"gelu far below 0", TT__GELU, gelu, -9, -2, 0, 80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double worst = worst_error(cases[i].op, cases[i].f, cases[i].low, cases[i].high, cases[i].floor);
        if (!(worst <= cases[i].limit))
            fail_msg("%s: expected at most %g units in the last place, got %g", cases[i].name, cases[i].limit, worst);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(functions_are_close),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
