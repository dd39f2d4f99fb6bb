/* The one summation order: every element type, op, number of ranks and instruction-set level against a scalar reference
 * that follows the definition by recursion, bit for bit; and 16-bit floats against arithmetic in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "comm/op.h"
#include "comm/reduce/pair_kernels.h"
#include "comm/reduce/reduce_tree.h"

enum { MAX_COUNT = 2600, MAX_RANKS = 1024 };

/* ---- 16-bit floats, told by what they mean ---- */

static double value_of_f16(uint16_t h) {
    int exponent = h >> 10 & 31, digits = h & 1023;
    double x = exponent == 31 ? (digits ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + digits, exponent - 25)
                              : ldexp(digits, -24);
    return h & 0x8000 ? -x : x;
}

/* The nearest multiple of the unit in the last place; rint() takes the even one of two. */
static double rounded(double x, int digits, int least_exponent, double largest) {
    if (x == 0 || isnan(x) || isinf(x))
        return x;
    int exponent = ilogb(x) < least_exponent ? least_exponent : ilogb(x);
    double y = ldexp(rint(ldexp(x, digits - exponent)), exponent - digits);
    return fabs(y) > largest ? copysign(INFINITY, x) : y;
}

static double as_f16(double x) { return rounded(x, 10, -14, 65504); }
static double as_bf16(double x) { return rounded(x, 7, -126, ldexp(255, 120)); }

static void expect_same(double is, double expected) {
    if (isnan(expected))
        assert_true(isnan(is));
    else if (is != expected || signbit(is) != signbit(expected)) {
        print_error("%.17g instead of %.17g\n", is, expected);
        fail();
    }
}

static void halves_widen_exactly(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        expect_same((double)tt__float_of_f16((uint16_t)h), value_of_f16((uint16_t)h));
        expect_same((double)tt__float_of_bf16((uint16_t)h), (double)tt__float_of_bits(h << 16));
    }
}

/* Every half, its neighbours in f32, the ties between halves and their neighbours, and what is spread over all of
 * f32. */
static void halves_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++)
        for (int32_t nudge = -1; nudge <= 1; nudge++) {
            float exact = tt__float_of_f16((uint16_t)h), next = tt__float_of_f16((uint16_t)(h + 1));
            float tie = (float)(((double)exact + (double)next) / 2);
            const float x[] = {tt__float_of_bits(tt__bits_of_float(exact) + (uint32_t)nudge),
                               tt__float_of_bits(tt__bits_of_float(tie) + (uint32_t)nudge),
                               tt__float_of_bits((h << 16) + (uint32_t)nudge),
                               tt__float_of_bits((h << 16 | 0x8000) + (uint32_t)nudge),
                               tt__float_of_bits(h * 65537u * 7919u + (uint32_t)nudge)};
            for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
                expect_same(value_of_f16(tt__f16_of_float(x[i])), as_f16((double)x[i]));
                expect_same((double)tt__float_of_bf16(tt__bf16_of_float(x[i])), as_bf16((double)x[i]));
            }
        }
}

/* ---- the reference: one element at a time, by the definition ---- */

typedef union cell {
    int64_t i;
    float f;
    double d;
} cell;

static bool is_half(tt_dtype dtype) { return dtype == TT_F16 || dtype == TT_BF16; }
static bool in_f32(tt_dtype dtype) { return dtype == TT_F32 || is_half(dtype); }

static cell load(const void *from, size_t i, tt_dtype dtype) {
    switch (dtype) {
    case TT_F32:
        return (cell){.f = ((const float *)from)[i]};
    case TT_F64:
        return (cell){.d = ((const double *)from)[i]};
    case TT_F16:
        return (cell){.f = (float)value_of_f16(((const uint16_t *)from)[i])};
    case TT_BF16:
        return (cell){.f = tt__float_of_bits((uint32_t)((const uint16_t *)from)[i] << 16)};
    case TT_I32:
        return (cell){.i = ((const int32_t *)from)[i]};
    case TT_I64:
        return (cell){.i = ((const int64_t *)from)[i]};
    case TT_I16:
        return (cell){.i = ((const int16_t *)from)[i]};
    case TT_I8:
        return (cell){.i = ((const int8_t *)from)[i]};
    case TT_U8:
        return (cell){.i = ((const uint8_t *)from)[i]};
    case TT_BOOL:
        return (cell){.i = ((const uint8_t *)from)[i] != 0};
    }
    return (cell){0};
}

static int64_t wrapped(int64_t x, tt_dtype dtype) {
    return dtype == TT_I32   ? (int32_t)x
           : dtype == TT_I16 ? (int16_t)x
           : dtype == TT_I8  ? (int8_t)x
           : dtype == TT_U8  ? (uint8_t)x
                             : x;
}

static int64_t join_integers(int64_t x, int64_t y, tt_dtype dtype, tt_reduce_op op) {
    bool logical = dtype == TT_BOOL;
    switch (op) {
    case TT_PRODUCT:
        return logical ? x & y : wrapped((int64_t)((uint64_t)x * (uint64_t)y), dtype);
    case TT_MIN:
        return x < y ? x : y;
    case TT_MAX:
        return x > y ? x : y;
    case TT_BAND:
        return x & y;
    case TT_BOR:
        return x | y;
    case TT_BXOR:
        return x ^ y;
    default:
        return logical ? x | y : wrapped((int64_t)((uint64_t)x + (uint64_t)y), dtype);
    }
}

#define JOIN_FLOATS(T)                              \
    (op == TT_PRODUCT ? x * y                       \
     : op == TT_MIN   ? (x < y || isnan(x) ? x : y) \
     : op == TT_MAX   ? (x > y || isnan(x) ? x : y) \
                      : x + y)
static float join_f32(float x, float y, tt_reduce_op op) { return JOIN_FLOATS(float); }
static double join_f64(double x, double y, tt_reduce_op op) { return JOIN_FLOATS(double); }

static cell join(cell x, cell y, tt_dtype dtype, tt_reduce_op op) {
    if (in_f32(dtype))
        return (cell){.f = join_f32(x.f, y.f, op)};
    if (dtype == TT_F64)
        return (cell){.d = join_f64(x.d, y.d, op)};
    return (cell){.i = join_integers(x.i, y.i, dtype, op)};
}

typedef struct reduction {
    const void *const *src;
    const double *factors;
    int n;
    tt_dtype dtype;
    tt_reduce_op op;
} reduction;

static cell leaf(const reduction *r, int rank, size_t i) {
    cell x = load(r->src[rank], i, r->dtype);
    bool scaled = (r->op == TT_AVG && (in_f32(r->dtype) || r->dtype == TT_F64)) || r->op == TT_PREMUL_SUM;
    double scale = r->op == TT_AVG ? 1.0 / r->n : scaled ? r->factors[rank] : 1;
    if (scaled && r->dtype == TT_F64)
        x.d *= scale;
    else if (scaled)
        x.f *= (float)scale;
    return x;
}

/* Units first..last-1 of the p that remain after folding; always a power of two of them. */
static cell units(const reduction *r, int folded, int first, int last, size_t i) {
    if (last - first > 1) {
        int middle = (first + last) / 2;
        return join(units(r, folded, first, middle, i), units(r, folded, middle, last, i), r->dtype, r->op);
    }
    return first < folded ? join(leaf(r, 2 * first, i), leaf(r, 2 * first + 1, i), r->dtype, r->op)
                          : leaf(r, first + folded, i);
}

static cell expected(const reduction *r, size_t i) {
    int p = 1;
    while (2 * p <= r->n)
        p *= 2;
    cell sum = units(r, r->n - p, 0, p, i);
    if (r->op == TT_AVG && !in_f32(r->dtype) && r->dtype != TT_F64)
        sum.i /= r->n;
    return sum;
}

static bool equals(const reduction *r, const void *is, size_t i) {
    cell e = expected(r, i), got = load(is, i, r->dtype);
    if (r->dtype == TT_F64)
        return isnan(e.d) ? isnan(got.d) : !memcmp(&e.d, &got.d, sizeof e.d);
    if (r->dtype == TT_BOOL && ((const uint8_t *)is)[i] > 1)
        return false;
    if (!in_f32(r->dtype))
        return e.i == got.i;
    if (is_half(r->dtype))
        e.f = (float)(r->dtype == TT_F16 ? as_f16((double)e.f) : as_bf16((double)e.f));
    return isnan(e.f) ? isnan(got.f) : !memcmp(&e.f, &got.f, sizeof e.f);
}

/* ---- inputs ---- */

static uint64_t random_bits(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* Ordinary numbers, with NaN, infinities, zeros and subnormals in between; integers of any bits. */
static void fill(void *to, size_t count, tt_dtype dtype) {
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-41f, -1e-7f, 65504};
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_bits();
        float x = bits % 97 < 8 ? special[bits % 97] : (float)((double)(int32_t)(bits >> 32) / 1e9);
        if (dtype == TT_F32)
            ((float *)to)[i] = x;
        else if (dtype == TT_F64)
            ((double *)to)[i] = bits % 97 < 8 ? (double)x : (double)(int64_t)bits / 1e18;
        else if (dtype == TT_F16)
            ((uint16_t *)to)[i] = tt__f16_of_float(x);
        else if (dtype == TT_BF16)
            ((uint16_t *)to)[i] = tt__bf16_of_float(x);
        else if (dtype == TT_BOOL)
            ((uint8_t *)to)[i] = bits % 3 ? (uint8_t)(bits >> 40) : 0;
        else
            memcpy((char *)to + i * tt_dtype_size(dtype), &bits, tt_dtype_size(dtype));
    }
}

static unsigned char *inputs[MAX_RANKS];
static double factors[MAX_RANKS];

static void fill_all(int n, size_t count, tt_dtype dtype) {
    for (int r = 0; r < n; r++) {
        inputs[r] = realloc(inputs[r], MAX_COUNT * 8);
        assert_non_null(inputs[r]);
        fill(inputs[r], count, dtype);
        factors[r] = (double)(r % 7) * 0.37 - 0.9;
    }
}

static int free_all(void **state) {
    (void)state;
    for (int r = 0; r < MAX_RANKS; r++)
        free(inputs[r]);
    return 0;
}

static void check(const reduction *r, const void *is, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (!equals(r, is, i)) {
            print_error("%s, %s, %d ranks, %zu elements: wrong at %zu (%s)\n", tt_dtype_name(r->dtype),
                        tt_reduce_op_name(r->op), r->n, count, i, what);
            fail();
        }
}

/* ---- the tree ---- */

static void one_case(int n, size_t count, tt_dtype dtype, tt_reduce_op op) {
    static unsigned char out[2][MAX_COUNT * 8];
    fill_all(n, count, dtype);
    reduction r = {(const void *const *)inputs, factors, n, dtype, op};
    tt__reduce_tree_scaled((void *[]){out[0], out[1]}, 2, r.src, factors, n, count, dtype, op);
    check(&r, out[0], count, "first of two");
    check(&r, out[1], count, "second of two");
    memset(out[0], 0xa5, sizeof out[0]);
    tt__reduce_tree_scaled((void *[]){out[0]}, 1, r.src, factors, n, count, dtype, op);
    check(&r, out[0], count, "one");
    size_t bytes = count * tt_dtype_size(dtype);
    assert_int_equal(out[0][bytes], 0xa5);
}

/* Into the sources themselves, as on symmetric buffers. */
static void in_place(int n, size_t count, tt_dtype dtype, tt_reduce_op op) {
    static unsigned char copies[16][MAX_COUNT * 8];
    void *all[16];
    fill_all(n, count, dtype);
    reduction r = {(const void *const *)all, factors, n, dtype, op};
    for (int i = 0; i < n; i++)
        all[i] = memcpy(copies[i], inputs[i], count * tt_dtype_size(dtype));
    tt__reduce_tree_scaled((void *const *)inputs, n, (const void *const *)inputs, factors, n, count, dtype, op);
    for (int i = 0; i < n; i++)
        check(&r, inputs[i], count, "in place");
}

static void every_type_and_op_follows_the_order(void **state) {
    (void)state;
    static const struct {
        int n;
        size_t count;
    } cases[] = {{1, 1},   {1, 1500}, {2, 1},  {2, 63}, {2, 2500}, {3, 17}, {3, 1030},
                 {4, 333}, {5, 129},  {6, 40}, {7, 64}, {8, 2100}, {16, 31}};
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        for (int op = TT_SUM; op < TT__REDUCE_OPS; op++)
            for (size_t c = 0;
                 c < sizeof cases / sizeof *cases && !tt__reduce_refusal((tt_dtype)dtype, (tt_reduce_op)op); c++) {
                one_case(cases[c].n, cases[c].count, (tt_dtype)dtype, (tt_reduce_op)op);
                in_place(cases[c].n, cases[c].count, (tt_dtype)dtype, (tt_reduce_op)op);
            }
}

static void many_ranks_fit(void **state) {
    (void)state;
    static const int worlds[] = {63, 64, 65, 100, 127, 511, 1023, 1024};
    static const tt_dtype dtypes[] = {TT_F32, TT_F16};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (size_t d = 0; d < 2; d++) {
            one_case(worlds[w], 37, dtypes[d], TT_SUM);
            one_case(worlds[w], 37, dtypes[d], TT_PREMUL_SUM);
        }
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++) {
        bool is_float = dtype == TT_F32 || dtype == TT_F64 || is_half((tt_dtype)dtype);
        for (int op = TT_SUM; op < TT__REDUCE_OPS; op++) {
            bool bitwise = op == TT_BAND || op == TT_BOR || op == TT_BXOR;
            bool fits = is_float ? !bitwise : op != TT_PREMUL_SUM && !(op == TT_AVG && dtype == TT_BOOL);
            assert_int_equal(tt__reduce_refusal((tt_dtype)dtype, (tt_reduce_op)op) == NULL, fits);
        }
    }
}

/* Leaves, joins and rounding by hand, as ranks do that join partials: (r0+r1)+r2. */
static void partials_give_the_same_bits(void **state) {
    (void)state;
    enum { COUNT = 100, N = 3 };
    static double partial[N][COUNT], out[COUNT];
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        for (int o = TT_SUM; o < TT__REDUCE_OPS; o++) {
            tt_dtype d = (tt_dtype)dtype;
            tt_reduce_op op = (tt_reduce_op)o;
            if (tt__reduce_refusal(d, op))
                continue;
            fill_all(N, COUNT, d);
            for (int r = 0; r < N; r++)
                tt__reduce_leaf(partial[r], inputs[r], COUNT, d, tt__leaf_scale(d, op, N, factors[r]));
            tt__reduce_join(partial[1], partial[0], partial[1], COUNT, d, op);
            tt__reduce_join(partial[1], partial[1], partial[2], COUNT, d, op);
            tt__reduce_round(out, partial[1], COUNT, d, tt__root_divisor(d, op, N));
            check(&(reduction){(const void *const *)inputs, factors, N, d, op}, out, COUNT, "partials");
        }
}

/* ---- levels ---- */

#if defined(__x86_64__)
static const tt__pair_kernels *const tables[] = {&tt__pair_kernels_base, &tt__pair_kernels_avx2,
                                                 &tt__pair_kernels_avx512};
static int levels(void) { return (int)tt__cpu_level_get() + 1; }
#else
static const tt__pair_kernels *const tables[] = {&tt__pair_kernels_base};
static int levels(void) { return 1; }
#endif

/* The result of level l for inputs 0 and 1 with one kernel, in out (3, MAX_COUNT * 8). */
static void run_pair(int l, int dtype, int op, size_t n, unsigned char (*out)[MAX_COUNT * 8], size_t bytes) {
    const tt__pair_kernel *k = &tables[l]->of[dtype][op];
    bool scaled = in_f32((tt_dtype)dtype) || dtype == TT_F64; /* integers never are */
    memcpy(out[1], inputs[0], bytes);
    memcpy(out[2], inputs[1], bytes);
    k->pair(out[0], inputs[0], inputs[1], n, scaled ? 0.3 : 1, scaled ? -1.7 : 1);
    k->pair_two(out[1], out[2], out[1], out[2], n, scaled ? 0.3 : 1, scaled ? -1.7 : 1);
}

static void levels_agree(void **state) {
    (void)state;
    static unsigned char base[3][MAX_COUNT * 8], other[3][MAX_COUNT * 8];
    for (int l = 1; l < levels(); l++)
        for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
            for (size_t n = 1; n < 140; n += 3) {
                size_t bytes = n * tt_dtype_size((tt_dtype)dtype);
                fill_all(2, n, (tt_dtype)dtype);
                for (int op = 0; op < TT__PAIR_OPS; op++) {
                    if (!tables[0]->of[dtype][op].pair)
                        continue;
                    run_pair(0, dtype, op, n, base, bytes);
                    run_pair(l, dtype, op, n, other, bytes);
                    for (int i = 0; i < 3; i++)
                        assert_memory_equal(other[i], base[i], bytes);
                }
                if (tables[0]->leaf[dtype]) {
                    tables[0]->leaf[dtype](base[0], inputs[0], n, 0.7);
                    tables[l]->leaf[dtype](other[0], inputs[0], n, 0.7);
                    assert_memory_equal(other[0], base[0], is_half((tt_dtype)dtype) ? 4 * n : bytes);
                }
            }
}

/* All halves, NaN payloads included, at vector and at scalar positions; and back from f32 of any bits. */
static void levels_convert_alike(void **state) {
    (void)state;
    enum { N = 65536 + 5 };
    uint16_t *halves = malloc(N * sizeof *halves), *narrow[2] = {malloc(N * 2), malloc(N * 2)};
    float *wide[2] = {malloc(N * 4), malloc(N * 4)}, *any = malloc(N * 4);
    assert_true(halves && narrow[0] && narrow[1] && wide[0] && wide[1] && any);
    for (uint32_t i = 0; i < N; i++) {
        halves[i] = (uint16_t)i;
        any[i] = tt__float_of_bits((uint32_t)random_bits());
    }
    static const tt_dtype dtypes[] = {TT_F16, TT_BF16};
    for (int l = 1; l < levels(); l++)
        for (size_t d = 0; d < 2; d++) {
            tables[0]->leaf[dtypes[d]](wide[0], halves, N, 1);
            tables[l]->leaf[dtypes[d]](wide[1], halves, N, 1);
            assert_memory_equal(wide[1], wide[0], N * 4);
            for (int pass = 0; pass < 2; pass++) {
                tables[0]->narrow[dtypes[d]](narrow[0], pass ? any : wide[0], N);
                tables[l]->narrow[dtypes[d]](narrow[1], pass ? any : wide[0], N);
                assert_memory_equal(narrow[1], narrow[0], N * 2);
            }
        }
    free(halves), free(narrow[0]), free(narrow[1]), free(wide[0]), free(wide[1]), free(any);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_widen_exactly),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(every_type_and_op_follows_the_order),
        cmocka_unit_test(many_ranks_fit),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(partials_give_the_same_bits),
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(levels_convert_alike),
    };
    return cmocka_run_group_tests(tests, NULL, free_all);
}
