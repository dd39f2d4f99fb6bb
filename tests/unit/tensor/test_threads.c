/* Threads of operators: the same bits for any number of them, in every kernel of ours; which of oneDNN's products keep
 * them; forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <tutti/autograd.h>
#include <tutti/functional.h>
#include <unistd.h>

#include "base/process/limits.h"
#include "support/drawn.h"
#include "support/patience.h"
#include "tensor/device/parallel.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

/* ---- the loop itself */

enum { N = 10007, BLOCK = 64 };

static void mark(void *user, int64_t begin, int64_t end) {
    int *seen = user;
    for (int64_t i = begin; i < end; i++)
        seen[i] += begin % BLOCK == 0 && end - begin <= BLOCK ? 1 : 100;
}

static void every_index_comes_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        static int seen[N];
        memset(seen, 0, sizeof seen);
        assert_int_equal(tt_set_num_threads(threads), TT_OK);
        assert_int_equal(tt_get_num_threads(), threads);
        tt__parallel_for(N, BLOCK, mark, seen);
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
    }
    tt__parallel_for(0, BLOCK, mark, NULL);
    assert_int_equal(tt_set_num_threads(-1), TT_ERR_INVALID);
    assert_int_equal(tt_set_num_threads(0), TT_OK);
    tt_clear_error();
}

static void ranks_of_a_host_share_its_cpus(void **state) {
    (void)state;
    if (getenv("OMP_NUM_THREADS"))
        skip(); /* then that is what holds */
    int alone = tt_get_num_threads();
    assert_int_equal(alone, tt__cores());
    tt__set_cpu_share(3);
    assert_int_equal(tt_get_num_threads(), 3);
    tt__set_cpu_share(0);
    assert_int_equal(tt_get_num_threads(), alone);
}

/* ---- bits */

typedef tt_tensor *(*operation)(tt_tensor *a, tt_tensor *b);

static tt_tensor *f_scale(tt_tensor *a, tt_tensor *b) { return (void)b, tt_scale(a, 0.37); }
static tt_tensor *f_relu(tt_tensor *a, tt_tensor *b) { return (void)b, tt_relu(a); }
static tt_tensor *f_sum(tt_tensor *a, tt_tensor *b) { return (void)b, tt_sum(a); }
static tt_tensor *f_mean(tt_tensor *a, tt_tensor *b) { return (void)b, tt_mean(a); }
static tt_tensor *f_softmax(tt_tensor *a, tt_tensor *b) { return (void)b, tt_log_softmax(a, 1); }
static tt_tensor *f_rows(tt_tensor *a, tt_tensor *b) { return tt_add(a, tt_narrow(b, 0, 0, 1)); }
static tt_tensor *f_entropy(tt_tensor *a, tt_tensor *b) {
    return (void)b, tt_cross_entropy(a, tt_zeros(S(tt_tensor_size(a, 0)), TT_I64));
}

static tt_tensor *f_mse(tt_tensor *a, tt_tensor *b) { return tt_mse_loss(a, b); }
static tt_tensor *f_gelu(tt_tensor *a, tt_tensor *b) { return (void)b, tt_gelu(a); }
static tt_tensor *f_sum_rows(tt_tensor *a, tt_tensor *b) { return (void)b, tt_sum(a, .dim = TT_DIMS(1)); }
static tt_tensor *f_mean_columns(tt_tensor *a, tt_tensor *b) { return (void)b, tt_mean(a, .dim = TT_DIMS(0)); }
static tt_tensor *f_probabilities(tt_tensor *a, tt_tensor *b) { return (void)b, tt_softmax(a, 1); }

static const struct {
    const char *name;
    operation run;
} operations[] = {{"div", tt_div},
                  {"gelu", f_gelu},
                  {"sum of rows", f_sum_rows},
                  {"mean of columns", f_mean_columns},
                  {"probabilities", f_probabilities},
                  {"add", tt_add},
                  {"sub", tt_sub},
                  {"mul", tt_mul},
                  {"add rows", f_rows},
                  {"scale", f_scale},
                  {"relu", f_relu},
                  {"sum", f_sum},
                  {"mean", f_mean},
                  {"mse", f_mse},
                  {"softmax", f_softmax},
                  {"entropy", f_entropy}};

enum { ROWS = 1500, COLUMNS = 700 };

/* Result and gradients of an operation, one after the other. */
static int64_t all_bits(operation run, float *out) {
    TT_AUTO_SCOPE;
    int64_t rows = getenv("TT_SANITIZED") ? ROWS / 6 : ROWS;
    tt_tensor *a = tt_requires_grad_(drawn(S(rows, COLUMNS), 1), true),
              *b = tt_requires_grad_(drawn(S(rows, COLUMNS), 2), true);
    tt_tensor *y = run(a, b), *results[3] = {y, NULL, NULL};
    tt_tensor *dy = drawn(tt_tensor_shape(y), 3);
    assert_int_equal(tt_backward(y, .gradient = dy), TT_OK);
    results[1] = tt_grad(a);
    results[2] = tt_grad(b);
    int64_t at = 0;
    for (int k = 0; k < 3; k++) {
        if (results[k])
            memcpy(out + at, tt_tensor_f32(results[k]), (size_t)tt_tensor_numel(results[k]) * sizeof *out);
        at += tt_tensor_numel(results[k]);
    }
    return at;
}

static void our_kernels_give_the_same_bits(void **state) {
    (void)state;
    static float one[3 * ROWS * COLUMNS], other[3 * ROWS * COLUMNS];
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        assert_int_equal(tt_set_num_threads(1), TT_OK);
        int64_t n = all_bits(operations[i].run, one);
        for (int threads = 2; threads <= 3; threads++) {
            assert_int_equal(tt_set_num_threads(threads), TT_OK);
            assert_int_equal(all_bits(operations[i].run, other), n);
            if (memcmp(one, other, (size_t)n * sizeof *one))
                fail_msg("%s: %d threads give other bits than one", operations[i].name, threads);
        }
    }
    assert_int_equal(tt_set_num_threads(0), TT_OK);
}

/* What docs/reproducibility.md says of oneDNN's products is what this prints; that they are close is checked. */
static void products_are_close(void **state) {
    (void)state;
    const int64_t sizes[][3] = {{32, 512, 784},  {32, 10, 512},   {512, 784, 32},
                                {256, 256, 256}, {64, 64, 20000}, {7, 5, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        TT_AUTO_SCOPE;
        const int64_t *s = sizes[i];
        tt_tensor *a = drawn(S(s[0], s[2]), 1), *b = drawn(S(s[2], s[1]), 2), *y[4];
        for (int threads = 1; threads <= 3; threads++) {
            assert_int_equal(tt_set_num_threads(threads), TT_OK);
            y[threads] = tt_matmul(a, b);
            const float *p = tt_tensor_f32(y[1]), *q = tt_tensor_f32(y[threads]);
            for (int64_t k = 0; k < tt_tensor_numel(y[1]); k++)
                assert_true(__builtin_fabsf(p[k] - q[k]) <= 1e-6f * (float)s[2]);
        }
        printf("oneDNN (%d, %d) x (%d, %d): bits of 2 threads %s, of 3 %s\n", (int)s[0], (int)s[2], (int)s[2],
               (int)s[1], tt_equal(y[1], y[2]) ? "equal" : "differ", tt_equal(y[1], y[3]) ? "equal" : "differ");
    }
    assert_int_equal(tt_set_num_threads(0), TT_OK);
}

/* ---- forks */

static void a_child_of_a_process_with_threads_computes(void **state) {
    (void)state;
    assert_int_equal(tt_set_num_threads(2), TT_OK);
    {
        TT_AUTO_SCOPE;
        tt_matmul(drawn(S(300, 300), 1), drawn(S(300, 300), 2)); /* OpenMP's threads are there from now on */
        tt_sum(drawn(S(1000, 1000), 1));
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        tt_tensor *y = tt_matmul(drawn(S(300, 300), 1), drawn(S(300, 300), 2)), *z = tt_sum(drawn(S(1000, 1000), 1));
        _exit(y && z && tt_get_num_threads() == 1 && tt_set_num_threads(2) == TT_ERR_STATE ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    assert_int_equal(tt_set_num_threads(0), TT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_comes_once),
        cmocka_unit_test(ranks_of_a_host_share_its_cpus),
        cmocka_unit_test(our_kernels_give_the_same_bits),
        cmocka_unit_test(products_are_close),
        cmocka_unit_test(a_child_of_a_process_with_threads_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
