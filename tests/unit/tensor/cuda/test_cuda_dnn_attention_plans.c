/* How the CUDA device makes and keeps cuDNN's plans of attention, what follows a call that fails, and how our own
 * kernels take over: on the fake (tests/support/fake_cuda/cudnn.h). test_cuda_dnn_planner.c asks NVIDIA's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "cuda_dnn_fake.h"
#include "cuda_heads.h"
#include "unit/expect.h"

/* A plan, and its engine's configuration. */
enum { OBJECTS_OF_PLAN = 2 };

/* ---- plans ---- */

static void attentions_plans_are_for_one_case(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const long before = dnn_objects();
    tt_tensor *x = ripples(S(2, 2, 10, 8), 0.3, TT_F16), *far = there(x);
    tt_tensor *shorter = tt_narrow(far, 2, 0, 9), *turned = tt_contiguous(tt_transpose(far, 1, 2));
    tt_tensor *wider = there(ripples(S(2, 2, 10, 16), 0.3, TT_F16));
    turned = tt_transpose(turned, 1, 2);
    tt_scaled_dot_product_attention(far, far, far);
    tt_scaled_dot_product_attention(far, far, far, .is_causal = true);
    tt_scaled_dot_product_attention(shorter, far, far);
    tt_scaled_dot_product_attention(far, shorter, shorter);
    tt_scaled_dot_product_attention(wider, wider, far);
    tt_scaled_dot_product_attention(far, far, wider);
    tt_scaled_dot_product_attention(turned, far, far);
    tt_scaled_dot_product_attention(far, turned, far);
    tt_scaled_dot_product_attention(far, far, turned);
    tt_scaled_dot_product_attention(tt_narrow(far, 0, 1, 1), tt_narrow(far, 0, 1, 1), tt_narrow(far, 0, 1, 1));
    tt_scaled_dot_product_attention(tt_narrow(far, 1, 1, 1), tt_narrow(far, 1, 1, 1), tt_narrow(far, 1, 1, 1));
    tt_scaled_dot_product_attention(tt_to(far, TT_BF16), tt_to(far, TT_BF16), tt_to(far, TT_BF16));
    assert_int_equal(dnn_objects(), before + 12 * OBJECTS_OF_PLAN);
    const long graphs = dnn_graphs();
    tt_scaled_dot_product_attention(far, far, far, .scale = 0.5); /* no part of a plan */
    tt_scaled_dot_product_attention(shorter, far, far);
    assert_int_equal(dnn_objects(), before + 12 * OBJECTS_OF_PLAN);
    assert_int_equal(dnn_graphs(), graphs + 2); /* those of pointers alone */
}

/* ---- what fails, and what is refused ---- */

static bool attention_is_the_cpus(int64_t number) {
    TT_AUTO_SCOPE;
    const heads_case c = case_of(number);
    attended near, far;
    if (!attend_with(TT_CUDA(0), &c, TT_F16, NULL, &far))
        return false;
    assert_true(attend_with(TT_CPU, &c, TT_F16, NULL, &near));
    for (int i = 0; i < RESULTS; i++)
        expect_close("attention", TT_F16, far.of[i], near.of[i]);
    return true;
}

/* Each call fails once, for attentions that there are no plans for yet; then all works again, and nothing is left. */
static void each_call_for_attention_may_fail(void **state) {
    (void)state;
    int failed = 0;
    assert_true(attention_is_the_cpus(0));
    for (int n = 1;; n++) {
        const long before = dnn_objects(), calls = dnn_calls(NULL);
        const int64_t bytes = bytes_in_use();
        let_dnn_fail(NULL, n, 4000);
        const bool well = attention_is_the_cpus(n);
        const bool all_were_made = dnn_calls(NULL) - calls < n;
        let_dnn_fail(NULL, 0, 0);
        if (!well && (tt_last_status() != TT_ERR_SYSTEM || !strstr(tt_last_error(), "cuda:0: cuDNN's cudnnBackend") ||
                      !strstr(tt_last_error(), "failed: CUDNN_STATUS_INTERNAL_ERROR (status 4000). TT_CUDA_DNN=own")))
            fail_msg("call %d: %s", n, tt_last_error());
        tt_clear_error();
        assert_int_equal(bytes_in_use(), bytes);
        assert_in_range(dnn_objects(), before - 2 * OBJECTS_OF_PLAN, before + 2 * OBJECTS_OF_PLAN);
        failed += !well;
        if (all_were_made)
            break;
    }
    assert_true(attention_is_the_cpus(3));
    assert_in_range(failed, 600, 1000);
}

/* One of the two passes by cuDNN, the other by our own kernels: they read each other's statistics. */
static void passes_may_be_mixed(void **state) {
    (void)state;
    for (int own_first = 0; own_first < 2; own_first++) {
        const int64_t number = 1400 + own_first;
        if (own_first) { /* the next graph counts as the first again */
            let_dnn_refuse(1);
            TT_AUTO_SCOPE;
            const heads_case c = case_of(number);
            tt_tensor *q = there(heads_input(&c, c.T, c.D, 0.3, TT_F16)),
                      *k = there(heads_input(&c, c.S, c.D, 0.7, TT_F16));
            assert_non_null(tt_scaled_dot_product_attention(q, k, k, .is_causal = true));
            let_dnn_refuse(0);
        }
        const long before = dnn_executions();
        if (!own_first)
            let_dnn_fail("cudnnBackendExecute", 2, 3000);
        assert_true(attention_is_the_cpus(number));
        let_dnn_fail(NULL, 0, 0);
        assert_int_equal(dnn_executions(), before + (own_first ? 1 : 2));
        assert_true(attention_is_the_cpus(number)); /* what was refused stays so */
        assert_int_equal(dnn_executions(), before + (own_first ? 2 : 3));
    }
}

static char lines[8192];

static void keep_line(tt_log_level level, const char *line, void *user) {
    size_t n = strlen(lines);
    (void)user;
    if (level == TT_LOG_WARNING)
        snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

static void refused_attention_is_told_once(void **state) {
    (void)state;
    const long before = dnn_executions();
    tt_set_log(keep_line, NULL);
    let_dnn_refuse(1);
    assert_true(attention_is_the_cpus(1510));
    let_dnn_refuse(0);
    assert_true(attention_is_the_cpus(1510));
    tt_set_log(NULL, NULL);
    assert_int_equal(dnn_executions(), before);
    assert_int_equal(tt_last_status(), TT_OK); /* a refusal is no error */
    const char *line = strstr(lines, "cuda:0: cuDNN has no plan that may be used for a result of attention in f16, q "
                                     "(1,2,32,8), v (1,2,39,8): Tutti's own kernels make it");
    assert_non_null(line);
    assert_null(strstr(line + 1, "cuda:0: cuDNN"));
}

/* Before 9.18 some results are wrong, or not the same each time. */
static void an_older_cudnn_does_not_attend(void **state) {
    (void)state;
    const long before = dnn_executions();
    be_dnn(91701);
    assert_true(attention_is_the_cpus(1511));
    assert_int_equal(dnn_executions(), before);
    be_dnn(91800);
    assert_true(attention_is_the_cpus(1511));
    assert_int_equal(dnn_executions(), before + 2);
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    find_fake_dnn();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_attention_is_told_once),
        cmocka_unit_test(attentions_plans_are_for_one_case),
        cmocka_unit_test(passes_may_be_mixed),
        cmocka_unit_test(an_older_cudnn_does_not_attend),
        cmocka_unit_test(each_call_for_attention_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
