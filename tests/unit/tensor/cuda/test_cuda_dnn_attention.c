/* Attention of the CUDA device by cuDNN (a fake of it: tests/support/fake_cuda/cudnn.h), beside the cpu's, and what our
 * own kernels do beside it; as test_cuda.c. test_cuda_dnn_attention_plans.c has its plans, and its failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_compare.h"
#include "cuda_dnn_fake.h"
#include "cuda_heads.h"
#include "unit/expect.h"

static const tt_dtype narrow[] = {TT_F16, TT_BF16};

static const heads_case heads_cases[] = {
    {"plain", 4, 2, 3, 5, 7, 8, 16, false, false, 0},     {"causal", 4, 2, 3, 9, 9, 16, 8, true, true, 0},
    {"more keys", 4, 1, 2, 4, 9, 8, 8, true, true, 0.25}, {"more rows", 4, 2, 1, 9, 4, 8, 8, true, false, 0},
    {"a batch", 3, 3, 1, 6, 5, 8, 8, false, false, 1.5},  {"matrices", 2, 1, 1, 6, 5, 24, 8, true, false, 0},
    {"one", 4, 1, 1, 1, 1, 8, 8, true, false, 0},
};
enum { HEADS_CASES = sizeof heads_cases / sizeof *heads_cases };

static void expect_attended(const heads_case *c, tt_dtype dtype, tt_tensor *mask) {
    static const char *const what[RESULTS] = {"y", "dq", "dk", "dv"};
    attended near, far, again;
    if (!attend_with(TT_CPU, c, dtype, mask, &near) || !attend_with(TT_CUDA(0), c, dtype, mask, &far) ||
        !attend_with(other_device(), c, dtype, mask, &again))
        fail_msg("%s: %s", c->name, tt_last_error());
    for (int i = 0; i < RESULTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s, %s", c->name, what[i]);
        expect_close(name, dtype, far.of[i], near.of[i]);
        assert_true(tt_equal(here(far.of[i]), here(again.of[i])));
    }
}

static void cudnn_attends(void **state) {
    (void)state;
    for (int i = 0; i < HEADS_CASES; i++)
        for (int f = 0; f < 2; f++) {
            TT_AUTO_SCOPE;
            const long before = dnn_executions();
            expect_attended(&heads_cases[i], narrow[f], NULL);
            if (dnn_executions() != before + 4) /* forward and backward, on two devices */
                fail_msg("%s of %s: %ld of 4 by cuDNN", heads_cases[i].name, tt_dtype_name(narrow[f]),
                         dnn_executions() - before);
        }
}

/* Of these cuDNN isn't even asked. */
static void our_own_attend_to_the_rest(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const long before = dnn_graphs();
    static const heads_case odd = {"odd columns", 4, 1, 2, 4, 5, 12, 8, false, false, 0};
    static const heads_case odd_values = {"odd columns of v", 4, 1, 2, 4, 5, 8, 12, false, false, 0};
    expect_attended(&odd, TT_F16, NULL);
    expect_attended(&odd_values, TT_BF16, NULL);
    expect_attended(&heads_cases[0], TT_F16, ripples(S(5, 7), 0.9, TT_F16));
    expect_attended(&heads_cases[0], TT_F32, NULL);
    expect_attended(&heads_cases[0], TT_F64, NULL);
    tt_tensor *many = ripples(S(2, 1, 2, 3, 8), 0.3, TT_F16), *rows = ripples(S(5, 12), 0.3, TT_F16);
    expect_close("five dimensions", TT_F16, tt_scaled_dot_product_attention(there(many), there(many), there(many)),
                 tt_scaled_dot_product_attention(many, many, many));
    tt_tensor *wide = ripples(S(5, 16), 0.3, TT_F16), *far_wide = tt_narrow(there(wide), 1, 0, 12);
    tt_tensor *values = ripples(S(5, 8), 0.9, TT_F16), *first = tt_narrow(wide, 1, 0, 12);
    expect_close("12 of 16", TT_F16, tt_scaled_dot_product_attention(far_wide, far_wide, there(values)),
                 tt_scaled_dot_product_attention(first, first, values));
    for (int64_t at = 0; at < 2; at++) { /* rows with gaps of 4, and where 4 come before the first, too */
        tt_tensor *far = tt_narrow(there(rows), 1, 4 * at, 8), *near = tt_narrow(rows, 1, 4 * at, 8);
        expect_close("gaps", TT_F16, tt_scaled_dot_product_attention(far, far, far),
                     tt_scaled_dot_product_attention(near, near, near));
    }
    tt_tensor *one = ripples(S(1, 4, 8), 0.3, TT_F16), *same = tt_expand(there(one), S(3, 4, 8));
    expect_close("one for all", TT_F16, tt_narrow(tt_scaled_dot_product_attention(same, same, same), 0, 1, 1),
                 tt_scaled_dot_product_attention(one, one, one));
    assert_int_equal(dnn_graphs(), before);
}

/* A matrix that begins at an odd address. */
static void matrices_anywhere_are_attended(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *line = ripples(S(100), 0.3, TT_F16);
    for (int64_t at = 0; at < 9; at += 4) {
        const long before = dnn_executions();
        tt_tensor *far = tt_view(tt_narrow(there(line), 0, at, 40), S(5, 8));
        tt_tensor *near = tt_view(tt_narrow(line, 0, at, 40), S(5, 8));
        expect_close("anywhere", TT_F16, tt_scaled_dot_product_attention(far, far, far),
                     tt_scaled_dot_product_attention(near, near, near));
        assert_int_equal(dnn_executions() - before, at != 4);
    }
}

/* The stride of a dimension of 1 says nothing. */
static void single_ones_have_no_stride(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const long before = dnn_executions();
    tt_tensor *x = ripples(S(3, 12), 0.3, TT_F16), *near = tt_narrow(tt_narrow(x, 0, 2, 1), 1, 0, 8);
    tt_tensor *far = tt_narrow(tt_narrow(there(x), 0, 2, 1), 1, 0, 8);
    assert_int_equal(tt_tensor_stride(far, 0), 12);
    expect_close("single", TT_F16, tt_scaled_dot_product_attention(far, far, far),
                 tt_scaled_dot_product_attention(near, near, near));
    assert_int_equal(dnn_executions(), before + 1);
}

/* ---- what backward keeps ---- */

/* Backward reads y, which must be what forward made. */
static void a_changed_result_is_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = there(ripples(S(5, 8), 0.3, TT_F16));
    tt_requires_grad_(x, true);
    tt_tensor *y = tt_scaled_dot_product_attention(x, x, x);
    tt_add_(y, y);
    assert_int_not_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_non_null(strstr(tt_last_error(), "its result"));
    tt_clear_error();
}

/* ---- graphs ---- */

typedef struct captured {
    tt_tensor *x, *y, *dx;
} captured;

static tt_status attention_step(void *user) {
    captured *c = user;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_detach(c->x);
    tt_requires_grad_(x, true);
    tt_tensor *y = tt_scaled_dot_product_attention(x, x, x, .is_causal = true, .scale = 0.75);
    if (!y || tt_backward(tt_sum(tt_mul(y, y))) || tt_copy(c->y, tt_detach(y)))
        return tt_last_status();
    return tt_copy(c->dx, tt_grad(x));
}

/* The scale, which the host's memory has only during the call, is the graph's, too. */
static void attention_is_captured(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const tt_shape shape = S(2, 6, 8);
    captured c = {there(ripples(shape, 0.3, TT_F16)), there(tt_zeros(shape, TT_F16)), there(tt_zeros(shape, TT_F16))};
    const long before = dnn_executions();
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 1, attention_step, &c);
    assert_non_null(graph);
    assert_int_equal(dnn_executions(), before + 4);
    assert_int_equal(tt_copy(c.x, ripples(shape, 0.7, TT_F16)), TT_OK);
    assert_int_equal(tt_graph_replay(graph), TT_OK);
    tt_tensor *y = tt_clone(here(c.y)), *dx = tt_clone(here(c.dx));
    assert_int_equal(dnn_executions(), before + 4);
    tt_graph_free(graph);
    assert_int_equal(attention_step(&c), TT_OK);
    assert_true(tt_equal(here(c.y), y) && tt_equal(here(c.dx), dx));
}

/* ---- processes that have not used CUDA yet ---- */

static const char *wanted_text;

static tt_tensor *one_attention(const tt_device *device) {
    tt_tensor *x = tt_to_device(ripples(S(2, 5, 8), 0.3, TT_F16), device);
    return x ? tt_scaled_dot_product_attention(x, x, x) : NULL;
}

static bool it_attends(void) {
    TT_AUTO_SCOPE;
    tt_tensor *y = one_attention(TT_CUDA(0));
    return y && difference(y, one_attention(TT_CPU)) <= 1e-3;
}

static bool it_attends_without(void) { return it_attends() && dnn_executions() == 0; }
static bool it_attends_with(void) { return it_attends() && dnn_executions() == 1; }
static bool it_says_why_not(void) { return !one_attention(TT_CUDA(0)) && strstr(tt_last_error(), wanted_text); }

static bool it_must_be_found(void) {
    setenv("TT_CUDA_DNN", "cudnn", 1);
    return it_says_why_not();
}

static void the_environment_chooses_who_attends(void **state) {
    char folder[4200];
    (void)state;
    expect_child_with("TT_CUDA_DNN", "", it_attends_with);
    expect_child_with("TT_CUDA_DNN", "own", it_attends_without);
    snprintf(folder, sizeof folder, "%s/old", getenv("TT_CUDA_PATH"));
    expect_child_with("TT_CUDA_PATH", folder, it_attends_without);
    wanted_text = "Expected cuDNN 9";
    expect_child_with("TT_CUDA_PATH", folder, it_must_be_found);
}

static bool it_fails_or_attends(void) {
    const heads_case c = case_of(7);
    TT_AUTO_SCOPE;
    attended near, far;
    const tt_device *device = TT_CUDA(0);
    if (!device || !attend_with(device, &c, TT_F16, NULL, &far))
        return tt_last_status() != TT_OK;
    tt_tensor *dv = here(far.of[3]);
    return dv ? attend_with(TT_CPU, &c, TT_F16, NULL, &near) && difference(dv, near.of[3]) <= 1e-3
              : tt_last_status() != TT_OK;
}

/* CUDA's own calls, from number n on. */
static void failures_of_cuda_are_told(void **state) {
    (void)state;
    for (int n = 1; n <= 40; n++) {
        char number[8];
        snprintf(number, sizeof number, "%d", n);
        expect_child_with("FAKE_CUDA_FAIL", number, it_fails_or_attends);
    }
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    find_fake_dnn();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_chooses_who_attends), /* before this process has used CUDA */
        cmocka_unit_test(failures_of_cuda_are_told),
        cmocka_unit_test(cudnn_attends),
        cmocka_unit_test(our_own_attend_to_the_rest),
        cmocka_unit_test(matrices_anywhere_are_attended),
        cmocka_unit_test(single_ones_have_no_stride),
        cmocka_unit_test(a_changed_result_is_told),
        cmocka_unit_test(attention_is_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
