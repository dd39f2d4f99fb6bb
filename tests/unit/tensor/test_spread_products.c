/* Products in f32 below AVX-512, which copy factors piece by piece where their lines lie a multiple of 1 KiB apart:
 * either factor, both, with sums and in several threads, beside products in f64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/machine/cpu.h"
#include "tensor/cpu/onednn/onednn.h"

#include <math.h>
#include <stdlib.h>
#include <tutti/functional.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

enum { BY_COLUMNS = 1, ADDS = 2 };

static void check_product(int64_t M, int64_t N, int64_t K, int how) {
    TT_AUTO_SCOPE;
    tt_tensor *a = how & BY_COLUMNS ? tt_transpose(tt_randn(S(K, M), NULL), 0, 1) : tt_randn(S(M, K), NULL);
    tt_tensor *b = tt_randn(S(K, N), NULL), *y = tt_randn(S(M, N), NULL);
    tt_tensor *want = tt_matmul(tt_to(a, TT_F64), tt_to(b, TT_F64));
    if (how & ADDS)
        want = tt_add(want, tt_to(y, TT_F64));
    assert_int_equal(tt__onednn_matmul_f32(y, a, b, how & ADDS ? 1 : 0), TT_OK);
    double far = NAN;
    assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(tt_to(y, TT_F64), want))), &far), TT_OK);
    if (!(far < 1e-3))
        fail_msg("(%d, %d) by (%d, %d), %d: %g off", (int)M, (int)K, (int)K, (int)N, how, far);
}

static void products_of_spread_factors(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {
        {64, 1280, 128}, {1280, 64, 128}, {256, 512, 300}, {512, 256, 300}, {48, 256, 16}};
    tt_manual_seed(1);
    assert_int_equal(tt__cpu_level_get(), TT__CPU_BASE);
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(tt_set_num_threads(threads), TT_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int how = 0; how < 4; how++)
                check_product(sizes[i][0], sizes[i][1], sizes[i][2], how);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_of_spread_factors)};
    setenv("TT_CPU_LEVEL", "base", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
