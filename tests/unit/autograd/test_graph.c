/* Records as a graph: scopes that end in any order, passes inside passes, passes in two parts, threads, operators of a
 * user's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "gradcheck.h"
#include "tensor/core/tensor.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static tt_tensor *leaf(float value) { return tt_requires_grad_(tt_full(S(2), TT_F32, (double)value), true); }

static float grad0(const tt_tensor *x) { return tt_tensor_f32(tt_grad(x))[0]; }

/* Values between -1 and 1, no two alike. */
static tt_tensor *drawn(tt_shape shape, uint64_t seed) {
    tt_generator *g = tt_generator_new(seed);
    tt_tensor *x = tt_rand(shape, g);
    tt_generator_free(g);
    return tt_sub(tt_scale(x, 2), tt_ones(S(1), TT_F32));
}

/* ---- scopes in any order */

enum { STAGES = 4, STEPS = 12 };

/* A pipeline stage: warm up with four micro-batches, then one backward and one forward in turn, the oldest first. */
static void a_pipeline_holds_four_graphs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = tt_requires_grad_(drawn(S(3, 3), 1), true);
    tt_scope *scope[STAGES] = {NULL};
    tt_tensor *y[STAGES];
    for (int step = 0; step < STEPS + STAGES; step++) {
        int at = step % STAGES;
        if (scope[at]) { /* the oldest */
            tt_tensor *dy = drawn(S(2, 3), (uint64_t)(100 + step - STAGES));
            assert_int_equal(tt_backward(y[at], .gradient = dy), TT_OK);
            tt_scope_free(scope[at]);
            scope[at] = NULL;
        }
        if (step >= STEPS)
            continue;
        scope[at] = tt_scope_new();
        assert_int_equal(tt_scope_enter(scope[at]), TT_OK);
        y[at] = tt_relu(tt_matmul(tt_relu(tt_matmul(drawn(S(2, 3), (uint64_t)(1 + step)), w)), w));
        assert_int_equal(tt_scope_leave(scope[at]), TT_OK);
    }
    tt_tensor *v = tt_requires_grad_(tt_clone(tt_detach(w)), true);
    for (int step = 0; step < STEPS; step++) { /* the same, one after the other */
        TT_AUTO_SCOPE;
        tt_tensor *z = tt_relu(tt_matmul(tt_relu(tt_matmul(drawn(S(2, 3), (uint64_t)(1 + step)), v)), v));
        assert_int_equal(tt_backward(z, .gradient = drawn(S(2, 3), (uint64_t)(100 + step))), TT_OK);
    }
    assert_true(tt_equal(tt_grad(w), tt_grad(v)));
}

static void scope_objects_and_blocks(void **state) {
    (void)state;
    tt_scope *a = tt_scope_new(), *b = tt_scope_new();
    assert_int_equal(tt_scope_enter(a), TT_OK);
    assert_int_equal(tt_scope_enter(a), TT_ERR_STATE);
    int block = tt_scope_begin();
    assert_int_equal(tt_scope_enter(b), TT_OK);
    tt_tensor *in_b = tt_ones(S(2), TT_F32);
    tt_scope_end(block); /* leaves b, which is not ended */
    assert_int_equal(tt_scope_leave(b), TT_ERR_STATE);
    tt_tensor *in_a = tt_full(S(2), TT_F32, 3);
    assert_int_equal(tt_scope_enter(b), TT_OK);
    assert_int_equal(tt_scope_leave(a), TT_OK); /* from below b */
    assert_int_equal(tt_scope_leave(b), TT_OK);
    assert_true(tt_tensor_f32(in_b)[0] == 1 && tt_tensor_f32(in_a)[0] == 3);
    tt_tensor *kept = tt_keep(in_a);
    tt_scope_free(a);
    tt_scope_free(b);
    tt_scope_free(NULL);
    assert_int_equal(tt_scope_enter(NULL), TT_ERR_STATE);
    tt_tensor *alone = tt_ones(S(1), TT_F32); /* no scope is open */
    tt_tensor_free(alone);
    tt_tensor_free(kept);
    tt_clear_error();
}

static void *is_refused(void *scope) {
    tt_status entered = tt_scope_enter(scope), left = tt_scope_leave(scope);
    tt_scope_free(scope); /* refused, too */
    return entered == TT_ERR_STATE && left == TT_ERR_STATE && tt_last_status() == TT_ERR_STATE ? scope : NULL;
}

static void one_thread_is_in_a_scope(void **state) {
    (void)state;
    tt_scope *s = tt_scope_new();
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(tt_scope_enter(s), TT_OK);
    assert_int_equal(pthread_create(&thread, NULL, is_refused, s), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, s);
    tt_scope_free(s); /* leaves it first */
}

/* ---- gradients given, graphs retained, parts of them */

/* Backward writes over gradients that nobody else has: not over one that was given, nor over one that another input's
 * gradient is, too. */
static void gradients_of_others_stay(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = leaf(3), *b = leaf(5), *given = tt_full(S(2), TT_F32, 1.5);
    tt_tensor *y = tt_scale(tt_relu(a), 2);
    for (int again = 1; again <= 2; again++) {
        assert_int_equal(tt_backward(y, .gradient = given, .retain_graph = true), TT_OK);
        assert_float_equal(tt_tensor_f32(given)[0], 1.5, 0);
        assert_float_equal(grad0(a), 3 * again, 0);
    }
    tt_zero_grad(a);
    tt_tensor *sum = tt_add(tt_scale(tt_exp(a), 0), tt_scale(tt_relu(b), 4)); /* both get the same gradient */
    assert_int_equal(tt_backward(tt_sum(tt_add(sum, tt_scale(sum, 10)))), TT_OK);
    assert_float_equal(grad0(a), 0, 0);
    assert_float_equal(grad0(b), 44, 0);
}

static void a_gradient_is_given(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3), *y = tt_mul(x, x);
    tt_tensor *dy = tt_from_data(((float[]){1, 10}), S(2), TT_F32);
    assert_int_equal(tt_backward(y, .gradient = dy, .retain_graph = true), TT_OK);
    assert_true(grad0(x) == 6 && tt_tensor_f32(tt_grad(x))[1] == 60);
    assert_int_equal(tt_backward(y, .gradient = dy), TT_OK);
    assert_true(grad0(x) == 12);
    assert_int_equal(tt_backward(y, .gradient = dy), TT_ERR_STATE);
    assert_int_equal(tt_backward(tt_mul(x, x), .gradient = tt_ones(S(3), TT_F32)), TT_ERR_SHAPE);
    assert_int_equal(tt_backward(tt_mul(x, x), .gradient = tt_ones(S(2), TT_F64)), TT_ERR_DTYPE);
    assert_int_equal(tt_backward(tt_mul(x, x)), TT_ERR_SHAPE);
    assert_true(tt_tensor_f32(dy)[1] == 10); /* borrowed */
    tt_clear_error();
}

static void only_some_leaves(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3), *w = leaf(5), *unused = leaf(1), *y = tt_sum(tt_mul(tt_mul(x, w), w));
    tt_tensor *found[4];
    assert_int_equal(tt_reachable_leaves(y, found, 4), 2);
    assert_true((found[0] == x && found[1] == w) || (found[0] == w && found[1] == x));
    assert_int_equal(tt_reachable_leaves(y, NULL, 0), 2);
    assert_int_equal(tt_reachable_leaves(unused, found, 4), 1);
    assert_int_equal(tt_reachable_leaves(tt_ones(S(1), TT_F32), found, 4), 0);
    tt_tensor *inputs[] = {x};
    assert_int_equal(tt_backward(y, .inputs = inputs, .input_count = 1), TT_OK);
    assert_true(grad0(x) == 25);
    assert_null(tt_grad(w));
    assert_int_equal(tt_reachable_leaves(y, found, 4), 0); /* spent */
}

static tt_status count_hook(tt_tensor *x, void *user) {
    (void)x;
    ++*(int *)user;
    return TT_OK;
}

/* Zero-bubble pipelines: the gradient of the input now, those of the weights later; bit for bit those of one pass. */
static void weights_come_later(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(drawn(S(4, 3), 1), true), *w = tt_requires_grad_(drawn(S(5, 3), 2), true);
    tt_tensor *v = tt_requires_grad_(drawn(S(2, 5), 3), true), *b = tt_requires_grad_(drawn(S(5), 4), true);
    tt_tensor *dy = drawn(S(4, 2), 5), *want[4], *all[] = {x, w, v, b};
    assert_int_equal(tt_backward(tt_linear(tt_relu(tt_linear(x, w, b)), v, NULL), .gradient = dy), TT_OK);
    for (int i = 0; i < 4; i++) {
        want[i] = tt_clone(tt_grad(all[i]));
        tt_zero_grad(all[i]);
    }
    int finals = 0;
    assert_int_equal(tt_register_post_accumulate_grad_hook(w, count_hook, &finals), TT_OK);
    tt_tensor *y = tt_linear(tt_relu(tt_linear(x, w, b)), v, NULL), *inputs[] = {x};
    tt_deferred_backward *later = NULL;
    assert_int_equal(tt_backward(y, .gradient = dy, .inputs = inputs, .input_count = 1, .deferred = &later), TT_OK);
    assert_true(tt_equal(tt_grad(x), want[0]));
    assert_null(tt_grad(w));
    assert_null(tt_grad(v));
    assert_int_equal(finals, 0);
    assert_int_equal(tt_backward_deferred(later), TT_OK);
    for (int i = 0; i < 4; i++)
        assert_true(tt_equal(tt_grad(all[i]), want[i]));
    assert_int_equal(finals, 1);
    assert_int_equal(tt_backward_deferred(later), TT_OK); /* nothing is left to do */
    assert_true(tt_equal(tt_grad(w), want[1]));
    tt_deferred_backward_free(later);
    assert_int_equal(tt_backward(y, .gradient = dy, .deferred = &later), TT_ERR_STATE); /* spent */
    assert_null(later);
    assert_int_equal(tt_backward_deferred(NULL), TT_ERR_INVALID);
    y = tt_linear(x, w, b);
    assert_int_equal(tt_backward(y, .gradient = drawn(S(4, 5), 6), .deferred = &later), TT_OK);
    tt_deferred_backward_free(later); /* never asked for: the records go */
    tt_clear_error();
}

/* ---- what was overwritten */

static void overwritten_tensors_are_named(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3), *c = tt_full(S(2), TT_F32, 2), *y = tt_mul(x, c);
    assert_int_equal(tt_copy(tt_narrow(c, 0, 0, 1), tt_ones(S(1), TT_F32)), TT_OK); /* through a view */
    assert_int_equal(tt_backward(tt_sum(y)), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "tt_mul needs \"b\", f32 (2)"));
    y = tt_add(x, c); /* needs neither */
    assert_int_equal(tt_normal_(c, 0, 1, NULL), TT_OK);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    tt_tensor *r = tt_relu(tt_scale(x, 1));
    assert_int_equal(tt_copy(r, tt_zeros(S(2), TT_F32)), TT_OK);
    assert_int_equal(tt_backward(tt_sum(r)), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "tt_relu needs \"its result\""));
    tt_clear_error();
}

/* ---- operators of one's own */

typedef struct power_state {
    double exponent;
} power_state;

/* y = x^n, for n a whole number: n is the argument. */
static tt_status power_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    const int *n = tt_node_arg(node);
    ((power_state *)tt_node_state(node))->exponent = *n;
    out[0] = tt_clone(in[0]);
    for (int i = 1; i < *n; i++)
        out[0] = tt_mul(out[0], in[0]);
    return tt_node_save(node, in[0], "x");
}

static tt_status power_backward(tt_node *node) {
    int n = (int)((power_state *)tt_node_state(node))->exponent;
    tt_tensor *x = tt_node_saved(node, 0), *g = tt_scale(tt_node_grad(node, 0), n);
    for (int i = 1; i < n; i++)
        g = tt_mul(g, x);
    return tt_node_give(node, 0, g);
}

static const tt_function power = {.size = sizeof(tt_function),
                                  .name = "power",
                                  .forward = power_forward,
                                  .backward = power_backward,
                                  .state_bytes = sizeof(power_state)};

static tt_tensor *f_power(tt_tensor *const *in) { return tt_apply(&power, &(int){3}, in[0]); }

/* Two results of two inputs: a b and a + b; its state owns memory. */
static int states_alive;

static tt_status pair_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    states_alive++;
    *(int **)tt_node_state(node) = &states_alive;
    out[0] = tt_mul(in[0], in[1]);
    out[1] = tt_add(in[0], in[1]);
    tt_status status = tt_node_save(node, in[0], "a");
    return status ? status : tt_node_save(node, in[1], "b");
}

static tt_status pair_backward(tt_node *node) {
    tt_tensor *gp = tt_node_grad(node, 0), *gs = tt_node_grad(node, 1);
    for (int i = 0; i < 2; i++) {
        tt_tensor *other = tt_node_saved(node, 1 - i), *g = gp ? tt_mul(gp, other) : NULL;
        g = g && gs ? tt_add(g, gs) : g ? g : gs;
        if (tt_node_wants(node, i) && tt_node_give(node, i, g))
            return tt_last_status();
    }
    return TT_OK;
}

static void pair_destroy(void *state) { --**(int **)state; }

static const tt_function pair = {.size = sizeof(tt_function),
                                 .name = "pair",
                                 .forward = pair_forward,
                                 .backward = pair_backward,
                                 .destroy = pair_destroy,
                                 .outputs = 2,
                                 .state_bytes = sizeof(int *)};

static tt_tensor *f_pair(tt_tensor *const *in) {
    tt_tensor *out[2];
    return tt_apply_many(&pair, NULL, in, 2, out) ? NULL : tt_sub(tt_mul(out[0], out[0]), out[1]);
}

static tt_tensor *f_pair_first(tt_tensor *const *in) {
    tt_tensor *out[2];
    return tt_apply_many(&pair, NULL, in, 2, out) ? NULL : out[0];
}

static void own_operators_match_finite_differences(void **state) {
    (void)state;
    const gradcheck_case cases[] = {{"power", f_power, 1, {{2, {3, 4}}}},
                                    {"pair", f_pair, 2, {{2, {3, 4}}, {2, {3, 4}}}},
                                    {"first of pair", f_pair_first, 2, {{2, {3, 4}}, {2, {3, 4}}}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int mode = 0; mode < GRADCHECK_MODES; mode++) {
            assert_true(gradcheck_worst(&cases[i], (gradcheck_mode)mode) < 1e-8);
            assert_true(gradcheck_f32_worst(&cases[i], (gradcheck_mode)mode) < 2e-6);
        }
    assert_int_equal(states_alive, 0);
}

static tt_status failing_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    (void)node;
    out[0] = tt_view(in[0], S(7));
    return TT_OK;
}

static tt_status half_done_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    (void)node;
    out[0] = tt_clone(in[0]);
    return tt_copy(out[0], tt_zeros(S(7), TT_F32));
}

static void own_operators_leave_nothing_after_a_failure(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const tt_function half_done = TT_FUNCTION(.name = "half_done", .forward = half_done_forward, .outputs = 2);
    tt_tensor *x = leaf(1), *out[2] = {x, x};
    assert_int_equal(tt_apply_many(&half_done, NULL, &x, 1, out), TT_ERR_SHAPE);
    assert_null(out[0]);
    assert_null(out[1]);
    tt_clear_error();
}

static tt_status give_early(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    out[0] = in[0];
    assert_false(tt_node_wants(node, 0));
    assert_null(tt_node_grad(node, 0));
    return tt_node_give(node, 0, in[0]);
}

static void gradients_are_not_given_in_forward(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const tt_function early = TT_FUNCTION(.name = "early", .forward = give_early);
    assert_null(tt_apply(&early, NULL, leaf(3)));
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "early: gradients are given in its backward"));
    tt_clear_error();
}

static void own_operators_fail_with_their_name(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const tt_function failing = TT_FUNCTION(.name = "my_op", .forward = failing_forward);
    const tt_function sizeless = {.name = "no_size", .forward = failing_forward};
    const tt_function nameless = TT_FUNCTION(.forward = failing_forward, .outputs = 2);
    tt_tensor *x = leaf(1);
    assert_null(tt_apply(&failing, NULL, x));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "my_op: tt_view"));
    assert_int_equal(tt_backward(NULL), TT_ERR_SHAPE);
    assert_null(tt_apply(&sizeless, NULL, x));
    assert_null(tt_apply(&nameless, NULL, x));
    assert_non_null(strstr(tt_last_error(), "tt_apply: expected a function with a name"));
    tt_clear_error();
    tt_tensor *out[2] = {x, x};
    assert_int_equal(tt_apply_many(&pair, NULL, NULL, 2, out), TT_ERR_INVALID);
    assert_true(!out[0] && !out[1]);
    assert_non_null(strstr(tt_last_error(), "expected a list of 2 inputs, got NULL"));
    assert_int_equal(tt_apply_many(&pair, NULL, (tt_tensor *[]){x, x}, 2, NULL), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "where to write the outputs is NULL"));
    assert_null(tt_apply_with(&failing, NULL, NULL, 1));
    assert_non_null(strstr(tt_last_error(), "expected a list of 1 inputs, got NULL"));
    assert_null(tt_apply(&pair, NULL, x, x)); /* two outputs */
    assert_null(tt_apply(&power, NULL, NULL));
    tt_clear_error();
}

/* Neither records an error of its own. */
static tt_status mute_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    out[0] = tt_node_arg(node) ? NULL : tt_scale(in[0], 2);
    return out[0] ? TT_OK : TT_ERR_UNSUPPORTED;
}

static tt_status mute_backward(tt_node *node) {
    (void)node;
    return TT_ERR_UNSUPPORTED;
}

static tt_status unsaved_backward(tt_node *node) {
    tt_tensor *x = tt_node_saved(node, 0); /* forward saved none */
    return x ? tt_node_give(node, 0, x) : tt_last_status();
}

static void own_operators_never_fail_silently(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const tt_function mute = TT_FUNCTION(.name = "my_op", .forward = mute_forward, .backward = mute_backward);
    const tt_function unsaved = TT_FUNCTION(.name = "my_op", .forward = mute_forward, .backward = unsaved_backward);
    tt_tensor *x = leaf(1);
    assert_null(tt_apply(&mute, "fail", x));
    assert_non_null(strstr(tt_last_error(), "my_op: "));
    assert_non_null(strstr(tt_last_error(), tt_status_text(TT_ERR_UNSUPPORTED)));
    assert_int_equal(tt_backward(NULL), TT_ERR_UNSUPPORTED);
    tt_clear_error();
    assert_int_equal(tt_backward(tt_sum(tt_apply(&mute, NULL, x))), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_last_error(), "my_op: "));
    tt_clear_error();
    assert_int_equal(tt_backward(tt_sum(tt_apply(&unsaved, NULL, x))), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "my_op saved 0 tensors, got number 0"));
    assert_null(tt_grad(x));
    tt_clear_error();
}

/* ---- passes inside passes: recomputation */

typedef struct segment {
    tt_tensor *w, *v;
} segment;

static tt_tensor *segment_run(const segment *s, tt_tensor *x) {
    return tt_relu(tt_matmul(tt_relu(tt_matmul(x, s->w)), s->v));
}

static tt_status checkpoint_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    const segment *s = tt_node_arg(node);
    *(const segment **)tt_node_state(node) = s;
    out[0] = segment_run(s, in[0]);
    return tt_node_save(node, in[0], "x");
}

static tt_status checkpoint_backward(tt_node *node) {
    const segment *s = *(const segment **)tt_node_state(node);
    TT_ENABLE_GRAD;
    tt_tensor *x = tt_requires_grad_(tt_detach(tt_node_saved(node, 0)), true);
    tt_status status = tt_backward(segment_run(s, x), .gradient = tt_node_grad(node, 0));
    return status ? status : tt_node_give(node, 0, tt_grad(x));
}

static const tt_function checkpoint = {.size = sizeof(tt_function),
                                       .name = "checkpoint",
                                       .forward = checkpoint_forward,
                                       .backward = checkpoint_backward,
                                       .state_bytes = sizeof(void *)};

static void a_recomputed_segment_gives_the_same_bits(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(drawn(S(6, 4), 1), true);
    segment s = {tt_requires_grad_(drawn(S(4, 5), 2), true), tt_requires_grad_(drawn(S(5, 4), 3), true)};
    tt_tensor *all[] = {x, s.w, s.v}, *want[3];
    int finals = 0;
    assert_int_equal(tt_register_post_accumulate_grad_hook(s.w, count_hook, &finals), TT_OK);
    assert_int_equal(tt_backward(tt_sum(tt_mul(segment_run(&s, tt_relu(x)), x))), TT_OK);
    for (int i = 0; i < 3; i++) {
        want[i] = tt_clone(tt_grad(all[i]));
        tt_zero_grad(all[i]);
    }
    assert_int_equal(finals, 1);
    assert_int_equal(tt_backward(tt_sum(tt_mul(tt_apply(&checkpoint, &s, tt_relu(x)), x))), TT_OK);
    for (int i = 0; i < 3; i++)
        assert_true(tt_equal(tt_grad(all[i]), want[i]));
    assert_int_equal(finals, 2);
}

/* ---- threads */

typedef struct half {
    tt_tensor *y, *dy;
    tt_status status;
} half;

static void *walk_half(void *arg) {
    half *h = arg;
    h->status = tt_backward(h->y, .gradient = h->dy);
    return NULL;
}

/* One graph, cut in two; the halves share a leaf and are walked at the same time by threads that recorded neither. */
static void two_threads_walk_one_graphs_halves(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        TT_AUTO_SCOPE;
        tt_tensor *w = tt_requires_grad_(drawn(S(8, 8), 1), true), *x = drawn(S(4, 8), 2);
        tt_tensor *first = tt_matmul(x, w), *cut = tt_requires_grad_(tt_detach(first), true);
        tt_tensor *second = tt_matmul(tt_relu(cut), w);
        half h[2] = {{first, drawn(S(4, 8), 3), TT_OK}, {second, drawn(S(4, 8), 4), TT_OK}};
        pthread_t thread[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, walk_half, &h[i]), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(thread[i], NULL), 0);
            assert_int_equal(h[i].status, TT_OK);
        }
        tt_tensor *v = tt_requires_grad_(tt_clone(tt_detach(w)), true);
        assert_int_equal(tt_backward(tt_matmul(x, v), .gradient = h[0].dy), TT_OK);
        assert_int_equal(tt_backward(tt_matmul(tt_relu(tt_detach(cut)), v), .gradient = h[1].dy), TT_OK);
        assert_true(tt_equal(tt_grad(w), tt_grad(v))); /* a sum of two is the same in either order */
        assert_non_null(tt_grad(cut));
    }
}

static void *record_elsewhere(void *arg) {
    tt_scope *s = tt_scope_new();
    if (tt_scope_enter(s))
        return NULL;
    tt_tensor **xy = arg;
    xy[1] = tt_sum(tt_mul(xy[0], xy[0]));
    return tt_scope_leave(s) ? NULL : s;
}

static void another_thread_walks_and_ends(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *xy[2] = {leaf(3), NULL};
    pthread_t thread;
    void *scope = NULL;
    assert_int_equal(pthread_create(&thread, NULL, record_elsewhere, xy), 0);
    assert_int_equal(pthread_join(thread, &scope), 0);
    assert_non_null(scope);
    assert_int_equal(tt_backward(xy[1]), TT_OK);
    assert_true(grad0(xy[0]) == 6);
    tt_scope_free(scope);
}

/* ---- long chains: no recursion */

static void a_long_chain_goes_without_recursion(void **state) {
    (void)state;
    tt_tensor *x = leaf(1), *y = tt_scale(x, 1);
    for (int i = 0; i < 200000; i++) { /* no scope: each record is held by the next */
        tt_tensor *z = tt_scale(y, 1);
        tt_tensor_free(y);
        y = z;
    }
    tt_tensor *loss = tt_sum(y);
    tt_tensor_free(y);
    assert_int_equal(tt_backward(loss, .retain_graph = true), TT_OK);
    assert_true(grad0(x) == 1);
    tt_tensor_free(loss);
    tt_tensor_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_others_stay),
        cmocka_unit_test(a_pipeline_holds_four_graphs),
        cmocka_unit_test(scope_objects_and_blocks),
        cmocka_unit_test(one_thread_is_in_a_scope),
        cmocka_unit_test(a_gradient_is_given),
        cmocka_unit_test(only_some_leaves),
        cmocka_unit_test(weights_come_later),
        cmocka_unit_test(overwritten_tensors_are_named),
        cmocka_unit_test(own_operators_match_finite_differences),
        cmocka_unit_test(own_operators_fail_with_their_name),
        cmocka_unit_test(own_operators_leave_nothing_after_a_failure),
        cmocka_unit_test(gradients_are_not_given_in_forward),
        cmocka_unit_test(own_operators_never_fail_silently),
        cmocka_unit_test(a_recomputed_segment_gives_the_same_bits),
        cmocka_unit_test(two_threads_walk_one_graphs_halves),
        cmocka_unit_test(another_thread_walks_and_ends),
        cmocka_unit_test(a_long_chain_goes_without_recursion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
