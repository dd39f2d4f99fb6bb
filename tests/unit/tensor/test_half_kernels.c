/* Conversions between f32 and 16-bit floats: each level's loops beside base/dtype.h, for all 16-bit values, around
 * every rounding and for NaN; tensors in any layout; and 16-bit kernels beside f32's, rounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "tensor/cpu/half/wide.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/functional.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

#if defined(__x86_64__)
static const tt__half_kernels *half_kernels_of(int level) {
    static const tt__half_kernels *const all[] = {&tt__half_kernels_of_types_base, &tt__half_kernels_of_types_avx2,
                                                  &tt__half_kernels_of_types_avx512};
    return all[level];
}
static int half_levels(void) { return (int)tt__cpu_level_get() + 1; }
#else
static const tt__half_kernels *half_kernels_of(int level) { return (void)level, &tt__half_kernels_of_types_base; }
static int half_levels(void) { return 1; }
#endif

enum { ALL = 1 << 16 };

static float of_bf16(uint16_t h) { return tt__float_of_bf16(h); }
static float of_f16(uint16_t h) { return tt__float_of_f16(h); }
static uint16_t to_bf16(float x) { return tt__bf16_of_float(x); }
static uint16_t to_f16(float x) { return tt__f16_of_float(x); }

static void check_widen(const tt__half_loops *loops, float (*one)(uint16_t)) {
    uint16_t *x = malloc(ALL * sizeof *x);
    float *y = malloc(ALL * sizeof *y);
    for (int i = 0; i < ALL; i++)
        x[i] = (uint16_t)i;
    loops->widen(ALL, x, y);
    for (int i = 0; i < ALL; i++)
        assert_int_equal(tt__bits_of_float(y[i]), tt__bits_of_float(one(x[i])));
    free(x);
    free(y);
}

/* The values of 16 bits as f32, those halfway to the next one, and those beside. */
static void check_narrow(const tt__half_loops *loops, float (*wide)(uint16_t), uint16_t (*one)(float)) {
    enum { EACH = 7 };
    float *x = malloc((size_t)ALL * EACH * sizeof *x);
    uint16_t *y = malloc((size_t)ALL * EACH * sizeof *y);
    for (int i = 0; i < ALL; i++) {
        uint32_t bits = tt__bits_of_float(wide((uint16_t)i));
        const uint32_t near[EACH] = {bits,          bits + 1,      bits + 0x0fff, bits + 0x1000,
                                     bits + 0x7fff, bits + 0x8000, bits + 0x8001};
        for (int k = 0; k < EACH; k++)
            x[i * EACH + k] = tt__float_of_bits(near[k]);
    }
    loops->narrow((int64_t)ALL * EACH, x, y);
    for (int i = 0; i < ALL * EACH; i++)
        assert_int_equal(y[i], one(x[i]));
    free(x);
    free(y);
}

static void levels_convert_alike(void **state) {
    (void)state;
    for (int level = 0; level < half_levels(); level++) {
        check_widen(&half_kernels_of(level)->bf16, of_bf16);
        check_widen(&half_kernels_of(level)->f16, of_f16);
        check_narrow(&half_kernels_of(level)->bf16, of_bf16, to_bf16);
        check_narrow(&half_kernels_of(level)->f16, of_f16, to_f16);
    }
}

static void ties_go_to_even_and_nan_stays(void **state) {
    (void)state;
    static const struct {
        float x;
        uint16_t bf16;
    } known[] = {{1.0f, 0x3f80}, {0x1.01p0f, 0x3f80}, {0x1.03p0f, 0x3f82}, {0x1.010002p0f, 0x3f81}, {3.4e38f, 0x7f80}};
    uint16_t y;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tt__half_loops_of_level()->bf16.narrow(1, &known[i].x, &y);
        assert_int_equal(y, known[i].bf16);
    }
    float nan = tt__float_of_bits(0x7f800001); /* its digits are all in the half that goes */
    tt__half_loops_of_level()->bf16.narrow(1, &nan, &y);
    assert_true((y & 0x7fff) > 0x7f80);
}

/* ---- tensors: on "cpu" as on "reference" */

static tt_tensor *laid_out(int layout, tt_dtype dtype) {
    tt_generator *g = tt_generator_new(5);
    tt_tensor *x = tt_to(tt_randn(S(6, 5, 8), g), dtype);
    tt_generator_free(g);
    return layout == 0   ? x
           : layout == 1 ? tt_transpose(x, 0, 2)
           : layout == 2 ? tt_narrow(x, 2, 1, 5)
                         : tt_expand(tt_narrow(x, 1, 2, 1), S(6, 3, 8));
}

static void layouts_convert_alike(void **state) {
    (void)state;
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16, TT_I32};
    const tt_device *reference = tt_device_get("reference");
    for (int layout = 0; layout < 4; layout++)
        for (int from = 0; from < 5; from++)
            for (int to = 0; to < 5; to++) {
                TT_AUTO_SCOPE;
                tt_tensor *x = laid_out(layout, types[from]), *y = tt_to(x, types[to]);
                tt_tensor *plain = tt_to(tt_to_device(x, reference), types[to]);
                assert_true(tt_equal(y, tt_to_device(plain, tt_device_get("cpu"))));
            }
}

#define KERNELS(X)                  \
    X(tt_add(x, z))                 \
    X(tt_sub(x, z))                 \
    X(tt_mul(x, z))                 \
    X(tt_scale(x, 0.3))             \
    X(tt_relu(x))                   \
    X(tt_gelu(x))                   \
    X(tt_exp(x))                    \
    X(tt_pow(x, 3))                 \
    X(tt_softmax(x, -1))            \
    X(tt_log_softmax(x, 1))         \
    X(tt_sum(x, .dim = TT_DIMS(0))) \
    X(tt_add(x, tt_narrow(z, 0, 0, 1)))

/* Each result is f32's of the same values, rounded once. */
static void kernels_round_once(void **state) {
    (void)state;
    for (int layout = 0; layout < 4; layout++)
        for (int low = 0; low < 2; low++) {
            TT_AUTO_SCOPE;
            tt_dtype dtype = low ? TT_BF16 : TT_F16;
            tt_tensor *x = laid_out(layout, dtype), *z = tt_contiguous(x), *made[16], *wide[16];
            int n = 0, m = 0;
#define MADE(call) made[n++] = call;
            KERNELS(MADE)
#undef MADE
            x = tt_to(x, TT_F32);
            z = tt_to(z, TT_F32);
#define WIDE(call) wide[m++] = call;
            KERNELS(WIDE)
#undef WIDE
            for (int i = 0; i < n; i++)
                if (!made[i] || !tt_equal(made[i], tt_to(wide[i], dtype)))
                    fail_msg("call %d, layout %d, %s: %s", i, layout, tt_dtype_name(dtype), tt_last_error());
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_convert_alike),
        cmocka_unit_test(ties_go_to_even_and_nan_stays),
        cmocka_unit_test(layouts_convert_alike),
        cmocka_unit_test(kernels_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
