/* Autocast: in which type each operator computes, the gradients of cast leaves, what is kept and when it is dropped,
 * and calls that are repeated in backward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/drawn.h"
#include "tensor/core/tensor.h"
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <tutti/functional.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#include <math.h>
#include <pthread.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

static tt_tensor *of(tt_shape shape, tt_dtype dtype) { return tt_to(drawn(shape, 7), dtype); }

/* ---- types */

#define IMAGE(d) of(S(2, 3, 6, 6), d)
#define ROWS(d) of(S(3, 4), d)
#define VECTOR(d) of(S(4), d)

static tt_tensor *classes(void) { return tt_from_data(((int64_t[]){0, 2, 1}), S(3), TT_I64); }

static tt_tensor *joined(tt_tensor *a, tt_tensor *b, bool stack) {
    tt_tensor *both[] = {a, b};
    return stack ? tt_stack(both, 2, 0) : tt_cat(both, 2, 0);
}

#define EXPRESSIONS(X)                                                                                         \
    X(linear, LOW, tt_linear(ROWS(d), ROWS(TT_F32), of(S(3), TT_F32)))                                         \
    X(matmul, LOW, tt_matmul(ROWS(d), of(S(4, 5), TT_F32)))                                                    \
    X(bmm, LOW, tt_bmm(of(S(2, 3, 4), d), of(S(2, 4, 5), TT_F32)))                                             \
    X(conv1d, LOW, tt_conv1d(of(S(2, 3, 8), d), of(S(4, 3, 3), TT_F32), .bias = VECTOR(TT_F32)))               \
    X(conv2d, LOW, tt_conv2d(IMAGE(d), of(S(4, 3, 3, 3), TT_F32), .bias = VECTOR(TT_F32)))                     \
    X(attention, LOW, tt_scaled_dot_product_attention(ROWS(d), ROWS(TT_F32), ROWS(d)))                         \
    X(conv_transpose2d, F32, tt_conv_transpose2d(IMAGE(d), of(S(3, 4, 3, 3), TT_F32), .bias = VECTOR(TT_F32))) \
    X(cross_entropy, F32, tt_cross_entropy(ROWS(d), classes(), .weight = VECTOR(TT_F32)))                      \
    X(nll_loss, F32, tt_nll_loss(ROWS(d), classes()))                                                          \
    X(mse_loss, F32, tt_mse_loss(ROWS(d), ROWS(TT_F32)))                                                       \
    X(l1_loss, F32, tt_l1_loss(ROWS(d), ROWS(d)))                                                              \
    X(smooth_l1_loss, F32, tt_smooth_l1_loss(ROWS(d), ROWS(d), 1))                                             \
    X(bce, F32, tt_binary_cross_entropy_with_logits(ROWS(d), ROWS(d), .pos_weight = VECTOR(TT_F32)))           \
    X(kl_div, F32, tt_kl_div(ROWS(d), ROWS(d)))                                                                \
    X(add, F32, tt_add(ROWS(d), VECTOR(TT_F32)))                                                               \
    X(sub, F32, tt_sub(ROWS(d), ROWS(TT_F32)))                                                                 \
    X(mul, F32, tt_mul(ROWS(TT_F32), ROWS(d)))                                                                 \
    X(div, F32, tt_div(ROWS(d), ROWS(TT_F32)))                                                                 \
    X(maximum, F32, tt_maximum(ROWS(d), ROWS(TT_F32)))                                                         \
    X(where, F32, tt_where(tt_gt(ROWS(d), ROWS(d)), ROWS(d), ROWS(TT_F32)))                                    \
    X(cat, F32, joined(ROWS(d), ROWS(TT_F32), false))                                                          \
    X(stack, F32, joined(ROWS(d), ROWS(TT_F32), true))                                                         \
    X(layer_norm, F32, tt_layer_norm(ROWS(d), S(4), .weight = VECTOR(TT_F32)))                                 \
    X(layer_norm_alone, SAME, tt_layer_norm(ROWS(d), S(4)))                                                    \
    X(group_norm, F32, tt_group_norm(IMAGE(d), 3, .weight = of(S(3), TT_F32)))                                 \
    X(rms_norm, F32, tt_rms_norm(ROWS(d), S(4), .weight = VECTOR(TT_F32)))                                     \
    X(batch_norm, F32, tt_batch_norm(IMAGE(d), .weight = of(S(3), TT_F32), .training = true))                  \
    X(add_, SAME, tt_add_(ROWS(d), ROWS(TT_F32)))                                                              \
    X(mul_, SAME, tt_mul_(ROWS(d), ROWS(TT_F32)))                                                              \
    X(add_alike, SAME, tt_add(ROWS(d), ROWS(d)))                                                               \
    X(relu, SAME, tt_relu(ROWS(d)))                                                                            \
    X(gelu, SAME, tt_gelu(ROWS(d)))                                                                            \
    X(exp, SAME, tt_exp(ROWS(d)))                                                                              \
    X(sum, SAME, tt_sum(ROWS(d)))                                                                              \
    X(softmax, SAME, tt_softmax(ROWS(d), 1))                                                                   \
    X(max_pool2d, SAME, tt_max_pool2d(IMAGE(d), 2))

enum { LOW, F32, SAME };

#define FUNCTION(name, type, expression) \
    static tt_tensor *make_##name(tt_dtype d) { return expression; }
EXPRESSIONS(FUNCTION)
#undef FUNCTION

typedef struct expression {
    const char *name;
    int type;
    tt_tensor *(*make)(tt_dtype d);
} expression;

static const expression expressions[] = {
#define EXPRESSION(name, type, expression) {#name, type, make_##name},
    EXPRESSIONS(EXPRESSION)
#undef EXPRESSION
};

static void check_expression(const expression *e, tt_dtype low, tt_dtype given) {
    TT_AUTO_SCOPE;
    TT_AUTOCAST(low);
    const tt_tensor *y = e->make(given);
    tt_dtype expected = e->type == LOW ? low : e->type == F32 ? TT_F32 : given;
    if (!y || tt_tensor_dtype(y) != expected)
        fail_msg("%s of %s under %s: expected %s, got %s: %s", e->name, tt_dtype_name(given), tt_dtype_name(low),
                 tt_dtype_name(expected), y ? tt_dtype_name(tt_tensor_dtype(y)) : "nothing", tt_last_error());
}

static void operators_choose_their_types(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++)
        for (int low = 0; low < 2; low++) {
            tt_dtype dtype = low ? TT_BF16 : TT_F16;
            check_expression(&expressions[i], dtype, dtype);
            check_expression(&expressions[i], dtype, TT_F32);
        }
}

static void wider_and_other_types_stay(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    TT_AUTOCAST(TT_BF16);
    tt_tensor *x = of(S(3, 4), TT_F64), *w = of(S(5, 4), TT_F64);
    assert_int_equal(tt_tensor_dtype(tt_linear(x, w, NULL)), TT_F64);
    assert_int_equal(tt_tensor_dtype(tt_mse_loss(x, x)), TT_F64);
    assert_int_equal(tt_tensor_dtype(tt_add(x, of(S(4), TT_BF16))), TT_F64);
    assert_int_equal(tt_tensor_dtype(tt_add(of(S(4), TT_F16), of(S(4), TT_BF16))), TT_F32);
    tt_tensor *mean = tt_zeros(S(3), TT_BF16), *var = tt_ones(S(3), TT_BF16);
    assert_null(tt_batch_norm(of(S(2, 3), TT_F32), .running_mean = mean, .running_var = var, .training = true));
    expect_error(TT_ERR_DTYPE, "running_mean bf16");
}

static void it_nests_and_ends(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = of(S(3, 4), TT_F32);
    assert_false(tt_is_autocast_enabled());
    int outer = tt_autocast_begin(TT_BF16);
    {
        TT_AUTOCAST(TT_F16);
        assert_int_equal(tt_get_autocast_dtype(), TT_F16);
        {
            TT_AUTOCAST(TT_BF16, .disabled = true);
            assert_false(tt_is_autocast_enabled());
            assert_int_equal(tt_tensor_dtype(tt_linear(x, x, NULL)), TT_F32);
        }
        assert_int_equal(tt_tensor_dtype(tt_linear(x, x, NULL)), TT_F16);
    }
    assert_int_equal(tt_tensor_dtype(tt_linear(x, x, NULL)), TT_BF16);
    tt_autocast_end(outer);
    assert_int_equal(tt_tensor_dtype(tt_linear(x, x, NULL)), TT_F32);
    assert_int_equal(tt_get_autocast_dtype(), TT_F32);
}

static void a_type_it_cannot_is_an_error(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    TT_AUTOCAST(TT_I64);
    tt_tensor *x = of(S(3, 4), TT_F32);
    assert_null(tt_linear(x, x, NULL));
    expect_error(TT_ERR_DTYPE, "autocast was begun with i64; expected TT_BF16 or TT_F16");
}

static void *look_at_it(void *arg) {
    *(bool *)arg = tt_is_autocast_enabled();
    return NULL;
}

static void it_belongs_to_its_thread(void **state) {
    (void)state;
    TT_AUTOCAST(TT_BF16);
    bool on = true;
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, look_at_it, &on), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_false(on);
}

/* ---- gradients */

/* The largest difference, in parts of the largest of b. */
static double distance(const tt_tensor *a, const tt_tensor *b) {
    const float *x = tt_tensor_f32(tt_to((tt_tensor *)a, TT_F32)), *y = tt_tensor_f32(tt_to((tt_tensor *)b, TT_F32));
    double most = 0, largest = 1e-30;
    for (int64_t i = 0; i < tt_tensor_numel(a); i++) {
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
        largest = fmax(largest, fabs((double)y[i]));
    }
    return most / largest;
}

static tt_tensor *two_layers(tt_tensor *x, tt_tensor *w, tt_tensor *b) {
    tt_tensor *h = tt_gelu(tt_linear(x, w, b));
    return tt_mse_loss(tt_linear(h, w, b), tt_zeros(S(6, 5), TT_F32));
}

static void gradients_are_the_leafs_and_close_to_f32s(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = drawn(S(6, 5), 1), *w = drawn_leaf(S(5, 5), 2), *b = drawn_leaf(S(5), 3);
    assert_int_equal(tt_backward(two_layers(x, w, b)), TT_OK);
    tt_tensor *dw = tt_clone(tt_detach(tt_grad(w))), *db = tt_clone(tt_detach(tt_grad(b)));
    tt_zero_grad(w);
    tt_zero_grad(b);
    int before = tt_autocast_begin(TT_BF16);
    tt_tensor *loss = two_layers(x, w, b);
    tt_autocast_end(before);
    assert_int_equal(tt_tensor_dtype(loss), TT_F32);
    assert_int_equal(tt_backward(loss), TT_OK);
    assert_int_equal(tt_tensor_dtype(tt_grad(w)), TT_F32);
    double far = distance(tt_grad(w), dw);
    assert_true(far > 0 && far < 0.03); /* a few units in bf16's last place, 2^-8 */
    assert_true(distance(tt_grad(b), db) < 0.03);
}

/* ---- casts that are kept */

static const void *data_cast(tt_tensor *w) {
    tt_tensor *x = of(S(2, 4), TT_BF16);
    tt_tensor *y = tt_linear(x, w, NULL);
    assert_non_null(y);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    return y;
}

static void accumulation_uses_a_kept_cast_again(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = drawn_leaf(S(3, 4), 1);
    int before = tt_autocast_begin(TT_BF16);
    {
        TT_AUTO_SCOPE;
        data_cast(w);
    }
    tt_tensor *once = tt_clone(tt_detach(tt_grad(w)));
    {
        TT_AUTO_SCOPE; /* records of the first pass are spent, and its tensors gone */
        data_cast(w);
    }
    tt_autocast_end(before);
    assert_true(tt_equal(tt_grad(w), tt_scale(once, 2)));
}

static void an_optimizers_step_renews_it(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    TT_AUTOCAST(TT_BF16);
    tt_tensor *w = drawn_leaf(S(3, 4), 1), *x = of(S(2, 4), TT_BF16);
    const char *name = "w";
    tt_optimizer *sgd = tt_sgd(TT_NAMED_TENSORS(1, &name, &w), 0.5);
    tt_tensor *y = tt_linear(x, w, NULL);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    tt_tensor *plain = tt_linear(x, tt_to(w, TT_BF16), NULL), *kept = tt_linear(x, w, NULL);
    assert_true(tt_equal(tt_detach(plain), tt_detach(kept)));
    assert_false(tt_equal(tt_detach(y), tt_detach(kept)));
    tt_optimizer_free(sgd);
}

static void writes_through_a_pointer_need_a_word(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    TT_AUTOCAST(TT_BF16);
    tt_tensor *w = drawn_leaf(S(1, 2), 1), *x = tt_ones(S(1, 2), TT_BF16);
    TT_NO_GRAD;
    tt_linear(x, w, NULL);
    tt_tensor_f32(w)[0] = 3;
    tt_tensor_f32(w)[1] = 4;
    tt_clear_autocast_cache();
    double value;
    assert_int_equal(tt_item(tt_linear(x, w, NULL), &value), TT_OK);
    assert_true(value == 7);
}

/* With no scope open, casts are nobody's of the caller. */
static tt_status without_a_scope(void *arg) {
    (void)arg;
    tt_status status = TT_ERR_MEMORY;
    int before = tt_autocast_begin(TT_BF16);
    tt_tensor *x = tt_ones(S(2, 4), TT_F32), *ones = tt_ones(S(3, 4), TT_F32), *w = tt_requires_grad_(ones, true);
    tt_tensor *bf = tt_to(x, TT_BF16), *both[] = {bf, x}, *y = tt_linear(x, w, NULL), *z = tt_linear(x, w, NULL);
    tt_tensor *c = bf && x ? tt_cat(both, 2, 0) : NULL;
    if (y && z && c)
        status = TT_OK;
    tt_tensor_free(c);
    tt_tensor_free(z);
    tt_tensor_free(y);
    tt_tensor_free(bf);
    tt_tensor_free(ones);
    tt_tensor_free(x);
    tt_autocast_end(before);
    return status;
}

static void nothing_leaks_when_memory_is_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(without_a_scope, NULL, ALLOC_MAY_END) > 10);
}

static tt_status scoped_step(void *arg) {
    TT_AUTO_SCOPE;
    tt_tensor **w = arg;
    int before = tt_autocast_begin(TT_BF16);
    tt_tensor *loss = two_layers(w[2], w[0], w[1]);
    tt_autocast_end(before);
    return tt_backward(loss);
}

static void a_steady_step_allocates_nothing(void **state) {
    (void)state;
    tt_tensor *w[] = {drawn_leaf(S(5, 5), 2), drawn_leaf(S(5), 3), drawn(S(6, 5), 1)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(scoped_step(w), TT_OK);
    long before = alloc_count_own;
    assert_int_equal(scoped_step(w), TT_OK);
    assert_int_equal(alloc_count_own - before, 0);
    for (int i = 0; i < 3; i++)
        tt_tensor_free(w[i]);
}

/* ---- what is called again */

static tt_tensor *segment(void *arg, tt_tensor *const *in, int64_t n) {
    (void)arg, (void)n;
    return tt_linear(tt_gelu(tt_linear(in[0], in[1], NULL)), in[1], NULL);
}

static void recomputation_is_under_the_same_autocast(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = drawn(S(6, 5), 1), *w = drawn_leaf(S(5, 5), 2), *gradient[2];
    for (int again = 0; again < 2; again++) {
        int before = tt_autocast_begin(TT_BF16);
        tt_tensor *in[] = {x, w};
        tt_tensor *y = again ? tt_recompute_with(segment, NULL, in, 2) : segment(NULL, in, 2);
        tt_autocast_end(before);
        assert_int_equal(tt_tensor_dtype(y), TT_BF16);
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        assert_false(tt_is_autocast_enabled());
        gradient[again] = tt_clone(tt_detach(tt_grad(w)));
        tt_zero_grad(w);
    }
    assert_true(tt_equal(gradient[0], gradient[1]));
}

static bool backward_was_under;

static tt_status own_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    (void)node;
    *out = tt_linear(in[0], in[1], NULL);
    return *out ? TT_OK : tt_last_status();
}

static tt_status own_backward(tt_node *node) {
    (void)node;
    backward_was_under = tt_get_autocast_dtype() == TT_BF16;
    return TT_OK;
}

static void functions_of_ones_own_too(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const tt_function own = {
        .size = sizeof own, .name = "own", .forward = own_forward, .backward = own_backward};
    tt_tensor *w = drawn_leaf(S(5, 5), 2);
    int before = tt_autocast_begin(TT_BF16);
    tt_tensor *y = tt_apply(&own, NULL, drawn(S(6, 5), 1), w);
    tt_autocast_end(before);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(backward_was_under);
}

static void anomaly_mode_names_casts(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_set_detect_anomaly(true);
    tt_tensor *w = drawn_leaf(S(2, 2), 2), *x = tt_full(S(2, 2), TT_F32, INFINITY);
    int before = tt_autocast_begin(TT_BF16);
    tt_tensor *y = tt_mul(tt_linear(w, x, NULL), tt_zeros(S(2, 2), TT_BF16));
    tt_autocast_end(before);
    assert_int_equal(tt_backward(tt_sum(y)), TT_ERR_NAN);
    expect_error(TT_ERR_NAN, "tt_linear");
    tt_set_detect_anomaly(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_choose_their_types),
        cmocka_unit_test(wider_and_other_types_stay),
        cmocka_unit_test(it_nests_and_ends),
        cmocka_unit_test(a_type_it_cannot_is_an_error),
        cmocka_unit_test(it_belongs_to_its_thread),
        cmocka_unit_test(gradients_are_the_leafs_and_close_to_f32s),
        cmocka_unit_test(accumulation_uses_a_kept_cast_again),
        cmocka_unit_test(an_optimizers_step_renews_it),
        cmocka_unit_test(writes_through_a_pointer_need_a_word),
        cmocka_unit_test(nothing_leaks_when_memory_is_out),
        cmocka_unit_test(a_steady_step_allocates_nothing),
        cmocka_unit_test(recomputation_is_under_the_same_autocast),
        cmocka_unit_test(functions_of_ones_own_too),
        cmocka_unit_test(anomaly_mode_names_casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
