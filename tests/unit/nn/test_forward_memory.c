/* Who frees what a forward makes: hooks keep what they saw, mixed precision meets modules that give back what they got,
 * memory runs out under a hook. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "unit/alloc_fail.h"

enum { MOST_KEPT = 200 };

typedef struct kept {
    int n;
    tt_tensor *x[MOST_KEPT];
} kept;

/* Keep each result once: operators in place give back what they got. */
static tt_status keep_each(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                           int64_t out_count, void *user) {
    kept *k = user;
    assert_true(module && in && in_count > 0 && out_count > 0);
    for (int i = 0; i < k->n; i++)
        if (k->x[i] == out[0])
            return TT_OK;
    assert_true(k->n < MOST_KEPT);
    k->x[k->n++] = tt_keep(out[0]);
    return TT_OK;
}

static void hook_parts(tt_module *module, kept *k) {
    for (int64_t i = 0; i < tt_module_child_count(module); i++) {
        tt_module *child = tt_module_child_at(module, i);
        assert_int_equal(tt_module_register_forward_hook(NULL, child, keep_each, k), TT_OK);
        hook_parts(child, k);
    }
}

/* A feature extractor: what it kept outlives the forward and the scope. */
static void hooks_keep(tt_module *model, tt_shape shape) {
    kept k = {0};
    assert_non_null(model);
    hook_parts(model, &k);
    {
        TT_AUTO_SCOPE;
        assert_non_null(tt_module_forward(model, tt_randn(shape, NULL)));
    }
    assert_true(k.n > 2);
    for (int i = 0; i < k.n; i++) {
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        double sum;
        assert_int_equal(tt_item(tt_sum(k.x[i]), &sum), TT_OK);
    }
    for (int i = 0; i < k.n; i++)
        tt_tensor_free(k.x[i]);
    tt_module_free(model);
}

static void what_hooks_keep_is_theirs(void **state) {
    (void)state;
    hooks_keep(tt_model_mnist_convnet(0.25, 0.5), TT_SHAPE(2, 1, 28, 28));
    hooks_keep(tt_model_resnet18(10, .small_input = true), TT_SHAPE(2, 3, 16, 16));
    hooks_keep(tt_nn_transformer_encoder(tt_nn_transformer_encoder_layer(8, 2, 16, 0.1), 2), TT_SHAPE(2, 4, 8));
    hooks_keep(tt_model_mlp(TT_SIZES(8, 6, 4, 3)), TT_SHAPE(2, 8));
}

/* Dropout gives back its input in evaluation: the caller's x, or what was made of it by a cast. */
static void what_is_given_back_is_freed_once(void **state) {
    (void)state;
    static const struct {
        tt_opt_level level;
        tt_dtype dtype;
    } cases[] = {{TT_O1, TT_BF16}, {TT_O1, TT_F32}, {TT_O2, TT_F32}, {TT_O3, TT_F32}, {TT_O3, TT_BF16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int scoped = 0; scoped < 2; scoped++) {
            int scope = scoped ? tt_scope_begin() : 0;
            tt_module *model = tt_nn_sequential(tt_nn_dropout(0.5));
            tt_module_eval(model);
            assert_int_equal(tt_amp_initialize(model, NULL, .opt_level = cases[i].level), TT_OK);
            tt_tensor *x = tt_full(TT_SHAPE(3), cases[i].dtype, 2), *y = tt_module_forward(model, x);
            assert_int_equal(tt_tensor_dtype(y), TT_F32);
            assert_int_equal(tt_tensor_dtype(x), cases[i].dtype);
            assert_true(tt_tensor_f32(y)[2] == 2);
            if (!scoped && y != x)
                tt_tensor_free(y);
            if (!scoped)
                tt_tensor_free(x);
            tt_scope_end(scope);
            tt_module_free(model);
        }
}

static tt_status see_nothing(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                             int64_t out_count, void *user) {
    return module && in && in_count && out && out_count && !user ? TT_OK : TT_ERR_INVALID;
}

static tt_status run_hooked_lstm(void *unused) {
    (void)unused;
    tt_module *lstm = tt_nn_lstm(3, 4, .num_layers = 2);
    tt_status status = lstm ? tt_module_register_forward_hook(NULL, lstm, see_nothing, NULL) : tt_last_status();
    TT_AUTO_SCOPE;
    tt_tensor *x = status ? NULL : tt_ones(TT_SHAPE(5, 2, 3), TT_F32), *out[3];
    if (!status)
        status = x ? tt_module_forward_many(lstm, &x, 1, out, 3) : tt_last_status();
    tt_module_free(lstm);
    return status;
}

static void memory_runs_out_under_a_hook(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_in_range(alloc_fail_each(run_hooked_lstm, NULL, ALLOC_ENDS), 20, 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hooks_keep_is_theirs),
        cmocka_unit_test(what_is_given_back_is_freed_once),
        cmocka_unit_test(memory_runs_out_under_a_hook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
