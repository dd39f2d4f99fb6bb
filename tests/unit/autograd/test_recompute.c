/* Segments that are run again in backward, beside the same segments recorded as they are. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autograd/node.h"
#include "support/drawn.h"
#include "tensor/core/tensor.h"
#include "tensor/random/generator.h"
#include "unit/expect.h"

#include <tutti/nn.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

static int runs;

/* Noise from the default generator between two products. in: x, weight. */
static tt_tensor *noisy(void *arg, tt_tensor *const *in, int64_t n) {
    (void)arg, (void)n;
    runs++;
    tt_tensor *h = tt_relu(tt_matmul(in[0], in[1]));
    return tt_matmul(tt_mul(h, tt_rand(tt_tensor_shape(h), NULL)), in[1]);
}

/* The gradients of x and of w, and what the generator draws afterwards. */
typedef struct outcome {
    tt_tensor *y, *dx, *dw;
    uint32_t next;
} outcome;

static outcome run(bool again) {
    outcome found;
    tt_tensor *x = drawn_leaf(S(5, 4), 1), *w = drawn_leaf(S(4, 4), 2);
    tt_manual_seed(3);
    tt_tensor *h = tt_scale(x, 2), *in[] = {h, w};
    tt_tensor *y = again ? tt_recompute(noisy, NULL, h, w) : noisy(NULL, in, 2);
    found.y = tt_clone(tt_detach(y));
    tt_rand(S(3), NULL); /* other draws between forward and backward */
    assert_int_equal(tt_backward(tt_sum(tt_mul(y, y))), TT_OK);
    found.next = tt_generator_random(NULL);
    found.dx = tt_clone(tt_detach(tt_grad(x)));
    found.dw = tt_clone(tt_detach(tt_grad(w)));
    return found;
}

static void gradients_are_those_of_the_plain_segment(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    outcome plain = run(false);
    runs = 0;
    outcome again = run(true);
    assert_int_equal(runs, 2);
    assert_true(tt_equal(plain.y, again.y) && tt_equal(plain.dx, again.dx) && tt_equal(plain.dw, again.dw));
    assert_int_equal(plain.next, again.next);
}

static int hooks;

static tt_status count_hook(tt_tensor *x, void *user) {
    (void)x, (void)user;
    hooks++;
    return TT_OK;
}

/* x requires no gradient; the parameters are listed, one is used outside as well, and each hook runs once. */
static void parameters_are_seen(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *net = tt_nn_sequential(tt_nn_linear(4, 6), tt_nn_relu(), tt_nn_linear(6, 4));
    const tt_named_tensors *p = tt_module_parameters(net);
    tt_tensor *x = drawn(S(3, 4), 5), *reached[8], *plain[4];
    assert_int_equal(tt_backward(tt_sum(tt_mul(tt_module_forward(net, x), p->tensors[3]))), TT_OK);
    for (int i = 0; i < 4; i++) {
        plain[i] = tt_clone(tt_detach(tt_grad(p->tensors[i])));
        tt_zero_grad(p->tensors[i]);
        assert_int_equal(tt_register_post_accumulate_grad_hook(p->tensors[i], count_hook, NULL), TT_OK);
    }
    hooks = 0;
    tt_tensor *y = tt_mul(tt_module_recompute(net, x), p->tensors[3]);
    assert_int_equal(tt_reachable_leaves(y, reached, 8), 4);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_int_equal(hooks, 4);
    for (int i = 0; i < 4; i++)
        assert_true(tt_equal(plain[i], tt_grad(p->tensors[i])));
    tt_module_free(net);
}

/* The record of the segment holds its input: what is inside goes when the forward has ended. */
static void what_is_inside_is_forgotten(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *net = tt_nn_sequential(tt_nn_linear(4, 4), tt_nn_relu(), tt_nn_linear(4, 4));
    tt_tensor *x = drawn_leaf(S(3, 4), 5), *h = tt_scale(x, 2);
    tt_tensor *y = tt_module_recompute(net, h);
    assert_ptr_equal(tt__node_of(y)->edge[0].node, tt__node_of(h));
    int saved = 0;
    for (int i = 0; i < tt__node_of(y)->saved; i++)
        saved += tt__node_of(y)->save[i].tensor != NULL;
    assert_int_equal(saved, 1);
    tt_module_free(net);
}

static void nothing_is_recorded_without_need(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = drawn(S(3, 4), 1), *w = drawn(S(4, 4), 2);
    assert_false(tt_requires_grad(tt_recompute(noisy, NULL, x, w)));
    TT_NO_GRAD;
    assert_false(tt_requires_grad(tt_recompute(noisy, NULL, drawn_leaf(S(3, 4), 1), w)));
}

/* ---- misuse */

static tt_tensor *fails(void *arg, tt_tensor *const *in, int64_t n) {
    (void)arg, (void)n;
    return tt_matmul(in[0], in[0]);
}

static tt_tensor *changes_shape(void *arg, tt_tensor *const *in, int64_t n) {
    (void)n;
    int *calls = arg;
    return ++*calls == 1 ? tt_relu(in[0]) : tt_sum(in[0]);
}

static void misuse_is_an_error(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    int calls = 0;
    tt_tensor *x = drawn_leaf(S(3, 4), 1), *h = tt_scale(x, 2);
    assert_null(tt_recompute(noisy, NULL, NULL, x));
    assert_null(tt_recompute(NULL, NULL, x));
    expect_error(TT_ERR_INVALID, "tt_recompute: expected a function and its inputs, got NULL");
    assert_null(tt_recompute_with(noisy, NULL, NULL, 2));
    expect_error(TT_ERR_INVALID, "at NULL");
    assert_null(tt_recompute(fails, NULL, x));
    expect_error(TT_ERR_SHAPE, "tt_matmul");
    tt_ignore(tt_item(NULL, &(double){0}));
    assert_int_equal(tt_backward(tt_sum(tt_recompute(changes_shape, &calls, h))), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "the segment gave f32 () when it was run again");
}

static void an_overwritten_input_is_an_error(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = drawn_leaf(S(3, 4), 1), *h = tt_scale(x, 3);
    tt_tensor *loss = tt_sum(tt_recompute(noisy, NULL, h, drawn(S(4, 4), 2)));
    assert_int_equal(tt_copy(h, drawn(S(3, 4), 7)), TT_OK);
    assert_int_equal(tt_backward(loss), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "tt_recompute needs \"an input\"");
}

/* x + 1, inside as many segments as `arg` says. */
static tt_tensor *nested(void *arg, tt_tensor *const *in, int64_t n) {
    (void)n;
    intptr_t left = (intptr_t)arg - 1;
    return left > 0 ? tt_recompute(nested, (void *)left, in[0]) : tt_add_scalar(in[0], 1);
}

/* Run segments in segments, forward and backward, on a small stack; *arg: how many, then the status. */
static void *nest_deeply(void *arg) {
    TT_AUTO_SCOPE;
    int *depth = arg;
    tt_tensor *x = drawn_leaf(S(2), 1), *y = tt_recompute(nested, (void *)(intptr_t)*depth, x);
    tt_status status = tt_backward(tt_sum(y));
    if (!status)
        assert_true(tt_tensor_f32(tt_grad(x))[0] == 1);
    else if (!strstr(tt_last_error(), "nested too deeply for this thread's stack"))
        fail_msg("%s", tt_last_error());
    *depth = (int)status;
    return NULL;
}

static tt_status nest_on_a_small_stack(int depth) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    /* A sanitizer's frames are larger, and it keeps notes of its own at a stack's end. */
    assert_int_equal(pthread_attr_setstacksize(&attr, (getenv("TT_SANITIZED") ? 1536 : 256) << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, nest_deeply, &depth), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    return (tt_status)depth;
}

static void deep_nesting_is_an_error(void **state) {
    (void)state;
    assert_int_equal(nest_on_a_small_stack(20), TT_OK);
    assert_int_equal(nest_on_a_small_stack(40), TT_OK);
    tt_ignore(nest_on_a_small_stack(200)); /* may fail, in backward */
    assert_int_equal(nest_on_a_small_stack(3000), TT_ERR_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_nesting_is_an_error),
        cmocka_unit_test(gradients_are_those_of_the_plain_segment),
        cmocka_unit_test(parameters_are_seen),
        cmocka_unit_test(what_is_inside_is_forgotten),
        cmocka_unit_test(nothing_is_recorded_without_need),
        cmocka_unit_test(misuse_is_an_error),
        cmocka_unit_test(an_overwritten_input_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
