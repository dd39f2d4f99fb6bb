/* Matrix products of the CUDA device by cuBLASLt (a fake of it: tests/support/fake_cuda/cublaslt.h) and by our own
 * kernels, beside the cpu's; as test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_blas_fake.h"
#include "cuda_compare.h"
#include "unit/expect.h"

/* ---- products and their gradients ---- */

typedef tt_tensor *(*binary)(tt_tensor *a, tt_tensor *b);

/* The last two dimensions change places. */
static tt_tensor *turned(tt_tensor *x) {
    int n = tt_tensor_dim(x);
    return tt_transpose(x, n - 2, n - 1);
}

static tt_tensor *as_heads(tt_tensor *x) { return tt_transpose(x, 1, 2); } /* (B,T,H,D) -> (B,H,T,D) */
static tt_tensor *with_a_turned(tt_tensor *a, tt_tensor *b) { return tt_matmul(turned(a), b); }
static tt_tensor *with_b_turned(tt_tensor *a, tt_tensor *b) { return tt_matmul(a, turned(b)); }
static tt_tensor *with_both_turned(tt_tensor *a, tt_tensor *b) { return tt_matmul(turned(a), turned(b)); }
static tt_tensor *of_parts(tt_tensor *a, tt_tensor *b) {
    return tt_matmul(tt_narrow(a, 1, 1, 9), tt_narrow(b, 1, 2, 6));
}
static tt_tensor *of_turned_parts(tt_tensor *a, tt_tensor *b) {
    return tt_matmul(turned(tt_narrow(a, 1, 1, 5)), tt_narrow(b, 0, 1, 9));
}
static tt_tensor *of_heads(tt_tensor *a, tt_tensor *b) { return tt_matmul(as_heads(a), turned(as_heads(b))); }
static tt_tensor *of_heads_after(tt_tensor *a, tt_tensor *b) { return tt_matmul(as_heads(a), b); }
static tt_tensor *of_wide_heads(tt_tensor *a, tt_tensor *b) { return tt_matmul(tt_transpose(a, 2, 3), b); }
static tt_tensor *of_repeated_rows(tt_tensor *a, tt_tensor *b) { return tt_matmul(tt_expand(a, S(5, 9)), b); }
static tt_tensor *of_a_layer(tt_tensor *a, tt_tensor *b) { return tt_linear(a, b, NULL); }
static tt_tensor *of_a_layer_turned(tt_tensor *a, tt_tensor *b) { return tt_linear(turned(a), b, NULL); }

#define OF(n, ...)                          \
    {                                       \
        .ndim = (n), .dim = { __VA_ARGS__ } \
    }

static const struct {
    const char *name;
    tt_shape a, b;
    binary run;
    int calls; /* of cuBLASLt, forward */
} cases[] = {
    {"plain", OF(2, 5, 9), OF(2, 9, 6), tt_matmul, 1},
    {"larger", OF(2, 33, 70), OF(2, 70, 40), tt_matmul, 1},
    {"a turned", OF(2, 9, 5), OF(2, 9, 6), with_a_turned, 1},
    {"b turned", OF(2, 5, 9), OF(2, 6, 9), with_b_turned, 1},
    {"both turned", OF(2, 9, 5), OF(2, 6, 9), with_both_turned, 1},
    {"parts", OF(2, 5, 11), OF(2, 9, 10), of_parts, 1},
    {"turned parts", OF(2, 9, 8), OF(2, 11, 6), of_turned_parts, 1},
    {"repeated rows", OF(2, 1, 9), OF(2, 9, 6), of_repeated_rows, 1},
    {"a row", OF(1, 9), OF(2, 9, 6), tt_matmul, 1},
    {"a column", OF(2, 5, 9), OF(1, 9), tt_matmul, 1},
    {"rows of one", OF(2, 5, 1), OF(2, 1, 6), tt_matmul, 1},
    {"a number", OF(2, 1, 1), OF(2, 1, 1), tt_matmul, 1},
    {"a batch", OF(3, 3, 5, 9), OF(3, 3, 9, 6), tt_matmul, 1},
    {"a batch of two dimensions", OF(4, 2, 3, 5, 9), OF(4, 2, 3, 9, 6), tt_matmul, 1},
    {"a batch, b turned", OF(3, 3, 5, 9), OF(3, 3, 6, 9), with_b_turned, 1},
    {"a batch, both turned", OF(3, 3, 9, 5), OF(3, 3, 6, 9), with_both_turned, 1},
    {"heads", OF(4, 2, 5, 3, 4), OF(4, 2, 6, 3, 4), of_heads, 2},
    {"heads and a batch", OF(4, 2, 5, 3, 4), OF(4, 2, 3, 4, 6), of_heads_after, 2},
    {"heads, two dimensions of a batch", OF(5, 2, 2, 5, 3, 4), OF(5, 2, 2, 3, 4, 6), of_wide_heads, 4},
    {"one b for all", OF(3, 3, 5, 9), OF(2, 9, 6), tt_matmul, 1},
    {"one a for all", OF(2, 5, 9), OF(3, 3, 9, 6), tt_matmul, 1},
    {"both broadcast", OF(4, 3, 1, 5, 9), OF(3, 2, 9, 6), tt_matmul, 3},
    {"no rows", OF(2, 0, 9), OF(2, 9, 6), tt_matmul, 0},
    {"no terms", OF(2, 5, 0), OF(2, 0, 6), tt_matmul, 0},
    {"an empty batch", OF(3, 0, 5, 9), OF(3, 0, 9, 6), tt_matmul, 0},
    {"a layer", OF(3, 2, 5, 9), OF(2, 6, 9), of_a_layer, 1},
    {"a layer, turned", OF(3, 2, 9, 5), OF(2, 6, 9), of_a_layer_turned, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

/* y, and the gradients of both. */
static void multiply_on(const tt_device *device, int i, tt_dtype dtype, tt_tensor *out[3]) {
    tt_tensor *a = tt_to_device(waves(cases[i].a, 0.7, dtype), device);
    tt_tensor *b = tt_to_device(waves(cases[i].b, 1.1, dtype), device);
    tt_requires_grad_(a, true);
    tt_requires_grad_(b, true);
    long before = products();
    out[0] = cases[i].run(a, b);
    if (!out[0])
        fail_msg("%s of %s: %s", cases[i].name, tt_dtype_name(dtype), tt_last_error());
    long more = products() - before, expected = device == TT_CPU || !calls ? 0 : cases[i].calls;
    if (more != expected)
        fail_msg("%s of %s: %ld calls of cuBLASLt, expected %ld", cases[i].name, tt_dtype_name(dtype), more, expected);
    tt_tensor *g = tt_to_device(waves(tt_tensor_shape(out[0]), 0.3, dtype), device);
    assert_int_equal(tt_backward(tt_sum(tt_mul(out[0], g))), TT_OK);
    out[1] = tt_grad(a);
    out[2] = tt_grad(b);
}

static void products_are_the_cpus(void **state) {
    static const char *const parts[] = {"y", "da", "db"};
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *near[3], *far[3];
            char what[96];
            multiply_on(TT_CPU, i, floats[f], near);
            multiply_on(TT_CUDA(0), i, floats[f], far);
            for (int k = 0; k < 3; k++) {
                snprintf(what, sizeof what, "%s: %s", cases[i].name, parts[k]);
                expect_close(what, floats[f], far[k], near[k]);
            }
        }
}

/* ---- bias ---- */

static tt_tensor *layer_on(const tt_device *device, tt_dtype dtype, tt_tensor *out[4]) {
    tt_tensor *x = tt_to_device(waves(S(2, 5, 9), 0.7, dtype), device);
    tt_tensor *w = tt_to_device(waves(S(6, 9), 1.1, dtype), device);
    tt_tensor *b = tt_to_device(waves(S(6), 0.9, dtype), device);
    for (int i = 0; i < 3; i++)
        tt_requires_grad_((tt_tensor *[]){x, w, b}[i], true);
    out[0] = tt_linear(x, w, b);
    assert_non_null(out[0]);
    assert_int_equal(tt_backward(tt_sum(tt_mul(out[0], out[0]))), TT_OK);
    out[1] = tt_grad(x);
    out[2] = tt_grad(w);
    out[3] = tt_grad(b);
    return out[0];
}

static void a_layer_with_bias_is_the_cpus(void **state) {
    (void)state;
    for (int f = 0; f < FLOATS; f++) {
        TT_AUTO_SCOPE;
        tt_tensor *near[4], *far[4];
        long before = products(), biases = calls ? calls("with a bias") : 0;
        layer_on(TT_CPU, floats[f], near);
        layer_on(TT_CUDA(0), floats[f], far);
        assert_int_equal(products() - before, calls ? 3 : 0); /* y, dx and dw; for f64 the fake takes no bias */
        assert_int_equal(calls ? calls("with a bias") - biases : 0, calls && floats[f] != TT_F64);
        for (int k = 0; k < 4; k++) {
            bool narrow = floats[f] != TT_F32 && floats[f] != TT_F64; /* g is 2 y, which rounds twice */
            double limit = tolerance(floats[f]) * (narrow ? 4 : 1);
            if (!(difference(far[k], near[k]) <= limit))
                fail_msg("%d of a layer of %s is %g away", k, tt_dtype_name(floats[f]), difference(far[k], near[k]));
        }
    }
}

/* A bias that begins at an odd address is asked about anew. */
static void a_bias_anywhere_is_added(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = waves(S(4, 9), 0.7, TT_F16), *w = waves(S(6, 9), 1.1, TT_F16), *b = waves(S(9), 0.9, TT_F16);
    for (int at = 0; at < 4; at++)
        expect_close("bias", TT_F16, tt_linear(there(x), there(w), tt_narrow(there(b), 0, at, 6)),
                     tt_linear(x, w, tt_narrow(b, 0, at, 6)));
}

/* 16-bit floats are added up in f32: 4096 ones would stop at 256 in bf16. */
static void long_sums_are_exact(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int f = 0; f < FLOATS; f++) {
        tt_tensor *a = there(tt_ones(S(3, 4096), floats[f])), *b = there(tt_ones(S(4096, 2), floats[f]));
        assert_true(tt_equal(here(tt_matmul(a, b)), tt_full(S(3, 2), floats[f], 4096)));
    }
}

static void each_device_has_its_own(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = waves(S(5, 9), 0.7, TT_F32), *b = waves(S(9, 6), 1.1, TT_F32);
    tt_tensor *y = tt_matmul(tt_to_device(a, other_device()), tt_to_device(b, other_device()));
    expect_close("product", TT_F32, y, tt_matmul(a, b));
}

/* ---- processes that have not used CUDA yet ---- */

static const char *text_wanted;

static tt_tensor *one_product(const tt_device *device) {
    tt_tensor *a = tt_to_device(waves(S(5, 9), 0.7, TT_F32), device);
    tt_tensor *b = tt_to_device(waves(S(6, 9), 1.1, TT_F32), device);
    return tt_linear(a, b, tt_to_device(waves(S(6), 0.9, TT_F32), device));
}

static bool it_multiplies(void) {
    tt_tensor *y = one_product(TT_CUDA(0));
    return y && difference(y, one_product(TT_CPU)) <= 2e-6;
}

static bool it_fails_or_multiplies(void) {
    const tt_device *device = TT_CUDA(0);
    tt_tensor *y = device ? one_product(device) : NULL, *near = y ? here(y) : NULL;
    return near ? difference(near, one_product(TT_CPU)) <= 2e-6 : tt_last_status() != TT_OK;
}

static bool it_multiplies_without(void) { return it_multiplies() && products() == 0; }
static bool it_multiplies_with(void) { return it_multiplies() && products() == 1; }
static bool it_says_why(void) { return !one_product(TT_CUDA(0)) && strstr(tt_last_error(), text_wanted); }
static bool it_grants_less(void) { return it_multiplies_with() && granted() == 4 << 20; }

static bool was_told;

static void look_for_text(tt_log_level level, const char *line, void *user) {
    (void)user;
    was_told |= level == TT_LOG_WARNING && strstr(line, "slower") && strstr(line, text_wanted);
}

static bool it_tells_and_multiplies(void) {
    tt_set_log(look_for_text, NULL);
    return it_multiplies_without() && was_told;
}

static bool it_must_be_the_library(void) {
    setenv("TT_CUDA_BLAS", "cublaslt", 1);
    return it_says_why();
}

/* The first product begins the library; where that fails, the next one tries again. */
static bool it_begins_later(void) {
    let_fail("cublasLtCreate", 13);
    text_wanted = "cuda:0: cuBLASLt's cublasLtCreate() failed: ";
    bool said = it_says_why();
    let_fail("cublasLtCreate", 0);
    return said && it_multiplies_with();
}

static void the_environment_chooses(void **state) {
    (void)state;
    only_on_the_fake();
    find_fake();
    expect_child_with("TT_CUDA_BLAS", "", it_multiplies_with);
    expect_child_with("TT_CUDA_BLAS", "own", it_multiplies_without);
    expect_child_with("TT_CUDA_BLAS", "cublaslt", it_multiplies_with);
    text_wanted = "TT_CUDA_BLAS: expected \"own\" or \"cublaslt\", got \"mkl\"";
    expect_child_with("TT_CUDA_BLAS", "mkl", it_says_why);
    expect_child_with("TT_CUDA_BLAS", "", it_begins_later);
    expect_child_with("FAKE_CUDA_CAPABILITY", "8", it_grants_less);
}

/* CUDA's own calls, from number n on. */
static void failures_of_cuda_are_told(void **state) {
    (void)state;
    only_on_the_fake();
    for (int n = 1; n <= 24; n++) {
        char number[8];
        snprintf(number, sizeof number, "%d", n);
        expect_child_with("FAKE_CUDA_FAIL", number, it_fails_or_multiplies);
    }
}

static void an_old_library_is_passed_over(void **state) {
    (void)state;
    only_on_the_fake();
    char old[4096];
    snprintf(old, sizeof old, "%s/old", getenv("TT_CUDA_PATH"));
    text_wanted = "/old/libcublasLt.so.13 has no cublasLtMatmulPreferenceDestroy()";
    expect_child_with("TT_CUDA_PATH", old, it_tells_and_multiplies);
    expect_child_with("TT_CUDA_PATH", old, it_must_be_the_library);
}

static void a_missing_library_is_told(void **state) {
    (void)state;
    only_on_the_fake();
    if (!access("/usr/local/cuda/lib64/libcublasLt.so.13", F_OK) || getenv("VIRTUAL_ENV") || getenv("CUDA_HOME"))
        skip(); /* it is not missing */
    expect_child_with("TT_CUDA_PATH", "", it_multiplies_without);
    text_wanted = "cuBLASLt was not found: expected libcublasLt.so.13";
    expect_child_with("TT_CUDA_PATH", "", it_must_be_the_library);
}

/* All comparisons again in a child, by our own kernels. */
static void our_own_kernels_do_the_same(void **state) {
    (void)state;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_cpus), cmocka_unit_test(a_layer_with_bias_is_the_cpus),
        cmocka_unit_test(a_bias_anywhere_is_added), cmocka_unit_test(long_sums_are_exact)};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("TT_CUDA_BLAS", "own", 1);
        calls = NULL;
        _exit(cmocka_run_group_tests_name("own kernels", tests, NULL, NULL));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_chooses), /* before this process has used CUDA */
        cmocka_unit_test(failures_of_cuda_are_told), cmocka_unit_test(an_old_library_is_passed_over),
        cmocka_unit_test(a_missing_library_is_told), cmocka_unit_test(our_own_kernels_do_the_same),
        cmocka_unit_test(products_are_the_cpus),     cmocka_unit_test(a_layer_with_bias_is_the_cpus),
        cmocka_unit_test(a_bias_anywhere_is_added),  cmocka_unit_test(long_sums_are_exact),
        cmocka_unit_test(each_device_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
