/* How the CUDA device asks cuBLASLt for algorithms and keeps them, and what follows a call that fails: on the fake
 * (tests/support/fake_cuda/cublaslt.h); as test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>

#include "cuda_blas_fake.h"
#include "cuda_compare.h"
#include "unit/expect.h"

/* ---- plans ---- */

static void expect_product(int64_t M, int64_t N, int64_t K, int64_t offset) {
    TT_AUTO_SCOPE;
    tt_tensor *a = waves(S(M, K + 4), 0.7, TT_F32), *b = waves(S(K, N), 1.1, TT_F32);
    expect_close("product", TT_F32, tt_matmul(tt_narrow(there(a), 1, offset, K), there(b)),
                 tt_matmul(tt_narrow(a, 1, offset, K), b));
}

static void plans_are_made_once(void **state) {
    (void)state;
    expect_product(7, 8, 9, 0);
    expect_product(7, 8, 10, 0);
    long before = questions();
    for (int i = 0; i < 3; i++) {
        expect_product(7, 8, 9, 0);
        expect_product(7, 8, 10, 0);
    }
    assert_int_equal(questions(), before);
    expect_product(7, 8, 9, 1); /* another alignment */
    assert_int_equal(questions(), before + 1);
    assert_int_equal(granted(), 32 << 20);
}

static void plans_have_a_bound(void **state) {
    (void)state;
    for (int64_t m = 1; m <= 20; m++)
        for (int64_t n = 1; n <= 20; n++)
            expect_product(m, n, 12, 0);
    assert_in_range(objects(), 500, 4 * 256);
}

/* ---- what fails, and what is refused ---- */

static const char *const functions[] = {"cublasLtMatrixLayoutCreate",     "cublasLtMatrixLayoutSetAttribute",
                                        "cublasLtMatmulDescCreate",       "cublasLtMatmulDescSetAttribute",
                                        "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
                                        "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"};

/* Each call fails once, for a product that there is no plan for yet; then all works again. */
static void a_failing_call_is_told(void **state) {
    (void)state;
    for (int i = 0; i < (int)(sizeof functions / sizeof *functions); i++) {
        TT_AUTO_SCOPE;
        char expected[160];
        tt_tensor *a = waves(S(2, 3, 50 + i), 0.7, TT_F32), *b = waves(S(2, 50 + i, 4), 1.1, TT_F32);
        tt_tensor *far_a = there(a), *far_b = there(b);
        long before = objects();
        let_fail(functions[i], 13);
        assert_null(tt_matmul(far_a, far_b));
        snprintf(expected, sizeof expected,
                 "tt_matmul: cuda:0: cuBLASLt's %s() failed: CUBLAS_STATUS_EXECUTION_FAILED (status 13). "
                 "TT_CUDA_BLAS=own multiplies without it",
                 functions[i]);
        expect_error(TT_ERR_SYSTEM, strchr(expected, ' ') + 1);
        assert_int_equal(objects(), before + (i == 7 ? 4 : 0)); /* the last one has a plan */
        let_fail(functions[i], 0);
        expect_close("product", TT_F32, tt_matmul(far_a, far_b), tt_matmul(a, b));
    }
}

static void what_is_refused_is_multiplied_all_the_same(void **state) {
    (void)state;
    refuse(2);
    for (int64_t n = 1; n <= 6; n++)
        expect_product(21, n, 13, 0);
    refuse(1);
    long before = products();
    expect_product(22, 5, 13, 0);
    assert_int_equal(products(), before);
    refuse(0);
    long asked = questions();
    expect_product(22, 5, 13, 0); /* that is known */
    assert_int_equal(products(), before);
    assert_int_equal(questions(), asked);
    let_fail("cublasLtMatmul", 15);
    expect_product(23, 5, 13, 0);
    let_fail("cublasLtMatmul", 0);
    expect_product(23, 5, 13, 0);
    assert_int_equal(products(), before + 1);
    assert_int_equal(tt_last_status(), TT_OK); /* a refusal is no error */
}

static void refused_batches_and_biases_are_done(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = waves(S(2, 3, 60), 0.7, TT_F32), *b = waves(S(2, 60, 4), 1.1, TT_F32);
    tt_tensor *w = waves(S(5, 60), 1.1, TT_F32), *bias = waves(S(5), 0.9, TT_F32);
    refuse(1);
    expect_close("batch", TT_F32, tt_matmul(there(a), there(b)), tt_matmul(a, b));
    expect_close("layer", TT_F32, tt_linear(there(a), there(w), there(bias)), tt_linear(a, w, bias));
    refuse(0);
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    find_fake();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_call_is_told), /* while there are few plans, so that none gives way */
        cmocka_unit_test(plans_are_made_once),
        cmocka_unit_test(plans_have_a_bound),
        cmocka_unit_test(what_is_refused_is_multiplied_all_the_same),
        cmocka_unit_test(refused_batches_and_biases_are_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
