/* Modules: buffers, tied weights, several tensors, hooks, modes, conversion, names. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "nn/module.h"
#include "tensor/core/tensor.h"
#include "unit/expect.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tt_tensor *same(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_scale(x, 1);
}

static const tt_module_class same_class = TT_MODULE_CLASS(.name = "Same", .forward = same);

static tt_module *new_same(void) { return tt_module_new(&same_class, NULL); }

static void expect_names(const tt_named_tensors *list, const char *const *names, size_t n) {
    assert_int_equal(list->count, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(list->names[i], names[i]);
}
#define EXPECT_NAMES(list, ...) \
    expect_names(list, (const char *[]){__VA_ARGS__}, COUNT(((const char *[]){__VA_ARGS__})))

/* ---- buffers and tied weights ---- */

static void buffers_are_state_that_is_not_trained(void **state) {
    (void)state;
    tt_module *m = new_same(), *inner = tt_nn_linear(2, 2, .no_bias = true);
    assert_int_equal(tt_module_add_module(m, "inner", inner), TT_OK);
    assert_int_equal(tt_module_register_buffer(m, "steps", tt_zeros(TT_SHAPE(2), TT_I64)), TT_OK);
    assert_int_equal(tt_module_register_buffer(m, "cache", tt_ones(TT_SHAPE(3), TT_F32), .non_persistent = true),
                     TT_OK);
    assert_int_equal(tt_module_register_parameter(m, "scale", tt_ones(TT_SHAPE(1), TT_F32)), TT_OK);
    EXPECT_NAMES(tt_module_parameters(m), "scale", "inner.weight");
    EXPECT_NAMES(tt_module_buffers(m), "steps", "cache");
    EXPECT_NAMES(tt_module_state_dict(m), "scale", "steps", "inner.weight"); /* torch's order */
    assert_false(tt_requires_grad(tt_module_buffers(m)->tensors[1]));
    tt_tensor *x = tt_ones(TT_SHAPE(1), TT_F32), *leaf = tt_requires_grad_(tt_ones(TT_SHAPE(1), TT_F32), true);
    assert_int_equal(tt_module_register_buffer(m, "steps", x), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "this Same has a \"steps\" already");
    assert_int_equal(tt_module_register_buffer(m, "leaf", leaf), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "requires a gradient");
    assert_int_equal(tt_module_register_buffer(NULL, "b", x), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_module_register_buffer(m, "null", NULL), TT_ERR_INVALID);
    tt_clear_error();
    tt_tensor_free(x);
    tt_tensor_free(leaf);
    tt_module_free(m);
}

static void a_tied_weight_has_two_names(void **state) {
    (void)state;
    tt_module *m = new_same(), *a = tt_nn_linear(3, 2, .no_bias = true), *b = new_same();
    tt_tensor *weight = tt_module_parameters(a)->tensors[0];
    assert_int_equal(tt_module_register_parameter(b, "weight", weight), TT_OK);
    assert_int_equal(tt_module_add_module(m, "a", a), TT_OK);
    assert_int_equal(tt_module_add_module(m, "b", b), TT_OK);
    EXPECT_NAMES(tt_module_parameters(m), "a.weight");
    EXPECT_NAMES(tt_module_state_dict(m), "a.weight", "b.weight");
    assert_ptr_equal(tt_module_state_dict(m)->tensors[1], weight);
    TT_AUTO_SCOPE;
    tt_tensor *two = tt_full(TT_SHAPE(2, 3), TT_F32, 2), *three = tt_full(TT_SHAPE(2, 3), TT_F32, 3);
    const char *const names[] = {"a.weight", "b.weight"};
    assert_int_equal(tt_module_load_state_dict(m, TT_NAMED_TENSORS(2, names, ((tt_tensor *[]){two, three}))),
                     TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "\"a.weight\" and \"b.weight\" are one tensor here, but two different ones");
    const tt_named_tensors none = {sizeof none, 0, NULL, NULL};
    assert_int_equal(tt_module_load_state_dict(m, &none), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "\"a.weight\" is missing");
    for (int i = 0; i < 2; i++) { /* one of the names is enough */
        if (tt_module_load_state_dict(m, TT_NAMED_TENSORS(1, names + i, (i ? &three : &two))))
            fail_msg("%s", tt_last_error());
        assert_true(tt_equal(weight, i ? three : two));
    }
    assert_int_equal(tt_module_load_state_dict(m, TT_NAMED_TENSORS(2, names, ((tt_tensor *[]){two, tt_clone(two)}))),
                     TT_OK);
    assert_true(tt_equal(weight, two));
    tt_module_free(m);
}

/* Whichever of two trees goes first, the other one has the tensor. */
static void tied_trees_may_be_freed_in_any_order(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        tt_module *m[] = {tt_nn_linear(3, 2, .no_bias = true), new_same()};
        tt_tensor *weight = tt_module_parameters(m[0])->tensors[0];
        assert_int_equal(tt_module_register_parameter(m[1], "weight", weight), TT_OK);
        assert_int_equal(tt_module_requires_grad_(m[0], false), TT_OK);
        assert_int_equal(tt_module_register_parameter(m[1], "again", weight), TT_OK);
        assert_false(tt_requires_grad(weight)); /* a frozen one stays frozen */
        tt_module_free(m[order]);
        assert_int_equal(tt_tensor_numel(weight), 6);
        tt_tensor_free(weight);
        expect_error(TT_ERR_STATE, "belongs to a module");
        tt_module_free(m[1 - order]);
    }
}

/* ---- several tensors ---- */

/* (a, b, c) -> (a + b, c) */
static tt_status join(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    (void)self;
    assert_true(in_count == 3 && out_count == 2);
    out[0] = tt_add(in[0], in[1]);
    out[1] = in[2];
    return out[0] ? TT_OK : tt_last_status();
}

static const tt_module_class join_class =
    TT_MODULE_CLASS(.name = "Join", .forward_many = join, .inputs = 3, .outputs = 2);

static tt_tensor *number(double value) { return tt_full(TT_SCALAR, TT_F32, value); }

static double value_of(const tt_tensor *x) {
    double value = NAN;
    assert_int_equal(tt_item(x, &value), TT_OK);
    return value;
}

static void several_tensors_go_in_and_come_out(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_module_new(&join_class, NULL), *relu = tt_nn_relu();
    tt_tensor *out[2], *y;
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(number(1), number(2), number(3)), out, 2), TT_OK);
    assert_true(value_of(out[0]) == 3 && value_of(out[1]) == 3);
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(number(1), number(2)), out, 2), TT_ERR_INVALID);
    assert_null(out[0]);
    expect_error(TT_ERR_INVALID, "a Join takes 3 tensors and gives 2; 2 came, and 2 were asked for");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(number(1), number(2), number(3)), out, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "3 came, and 1 were asked for");
    assert_null(tt_module_forward(m, number(1)));
    expect_error(TT_ERR_INVALID, "1 came, and 1 were asked for");
    assert_int_equal(tt_module_forward_many(relu, TT_TENSORS(number(1)), &y, 1), TT_OK); /* one to one fits */
    assert_true(value_of(y) == 1);
    assert_int_equal(tt_module_forward_many(relu, TT_TENSORS(number(1)), out, 2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "a ReLU takes 1 tensors and gives 1; 1 came, and 2 were asked for");
    tt_module_free(m);
    tt_module_free(relu);
}

static void failures_of_several_tensors(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_module_new(&join_class, NULL);
    tt_tensor *out[2] = {number(1), number(1)},
              *wrong = tt_add(tt_ones(TT_SHAPE(2), TT_F32), tt_ones(TT_SHAPE(3), TT_F32));
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(number(1), wrong, number(1)), out, 2), TT_ERR_SHAPE);
    assert_true(!out[0] && !out[1]);
    expect_error(TT_ERR_SHAPE, "tt_add"); /* the first error, not one of NULL */
    tt_tensor *two = tt_ones(TT_SHAPE(2), TT_F32), *three = tt_ones(TT_SHAPE(3), TT_F32);
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(two, three, two), out, 2), TT_ERR_SHAPE);
    assert_null(out[1]);
    assert_int_equal(tt_backward(out[0]), TT_ERR_SHAPE); /* an expression may be checked at its end */
    assert_int_equal(tt_module_forward_many(m, NULL, 3, out, 2), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_module_forward_many(NULL, &two, 1, out, 2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "the module is NULL");
    tt_module_free(m);
}

static void a_sequential_takes_what_its_first_child_takes(void **state) {
    (void)state;
    static const tt_module_class fork_class = TT_MODULE_CLASS(.name = "Join", .forward_many = join, .inputs = 3);
    TT_AUTO_SCOPE;
    tt_tensor *out[2];
    tt_module *ends = tt_nn_sequential(tt_module_new(&fork_class, NULL));
    assert_int_equal(tt_module_forward_many(ends, TT_TENSORS(number(1), number(2), number(3)), out, 2), TT_OK);
    assert_true(value_of(out[0]) == 3);
    tt_module *middle = tt_nn_sequential(tt_nn_relu(), tt_module_new(&join_class, NULL));
    assert_int_equal(tt_module_forward_many(middle, TT_TENSORS(number(1)), out, 2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "a Join takes 3 tensors and gives 2; 1 came, and 2 were asked for");
    tt_module_free(ends);
    tt_module_free(middle);
}

static tt_module *wrapped(tt_module *self) { return tt_module_user(self); }

static void a_wrapper_passes_any_number_on(void **state) {
    (void)state;
    static const tt_module_class wrapper_class = TT_MODULE_CLASS(.name = "Wrapper", .wrapped = wrapped);
    TT_AUTO_SCOPE;
    tt_tensor *out[2];
    tt_module *m = tt_module_new(&join_class, NULL), *w = tt_module_new(&wrapper_class, m);
    assert_int_equal(tt_module_forward_many(w, TT_TENSORS(number(1), number(2), number(3)), out, 2), TT_OK);
    assert_true(value_of(out[0]) == 3);
    tt_module_free(m);
    tt_module_free(w);
}

/* ---- hooks ---- */

typedef struct Seen {
    char text[64];
    tt_module *module;
    int64_t handle; /* of a hook that the next one removes */
    tt_status status;
} Seen;

static tt_status before(tt_module *module, tt_tensor **in, int64_t count, void *user) {
    Seen *l = user;
    assert_true(count == 1);
    strcat(l->text, "b");
    in[0] = tt_scale(in[0], 10);
    if (l->handle)
        assert_int_equal(tt_module_remove_hook(module, l->handle), TT_OK);
    l->handle = 0;
    return l->status ? tt__fail(l->status, "no luck") : TT_OK;
}

static tt_status after(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count,
                       void *user) {
    Seen *l = user;
    assert_true(in_count == 1 && out_count == 1 && module);
    strcat(l->text, "a");
    out[0] = tt_add(out[0], in[0]);
    return TT_OK;
}

static void hooks_see_and_change_what_passes(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    Seen l = {.text = ""};
    int64_t pre = 0, post = 0;
    tt_module *m = new_same();
    assert_int_equal(tt_module_register_forward_pre_hook(&pre, m, before, &l), TT_OK);
    assert_int_equal(tt_module_register_forward_hook(&post, m, after, &l), TT_OK);
    assert_true(pre > 0 && post > 0 && pre != post);
    assert_true(value_of(tt_module_forward(m, number(1))) == 20); /* 10, and again the input */
    assert_string_equal(l.text, "ba");
    assert_int_equal(tt_module_remove_hook(m, post), TT_OK);
    assert_true(value_of(tt_module_forward(m, number(1))) == 10);
    assert_int_equal(tt_module_remove_hook(m, post), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "this Same has no hook with the handle");
    l.handle = pre; /* it removes itself */
    assert_true(value_of(tt_module_forward(m, number(1))) == 10);
    assert_true(value_of(tt_module_forward(m, number(1))) == 1);
    assert_int_equal(m->hook_count, 0);
    assert_int_equal(tt_module_register_forward_hook(NULL, m, NULL, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_module_register_forward_hook(NULL, NULL, after, NULL), TT_ERR_INVALID);
    tt_clear_error();
    tt_module_free(m);
}

static void count_release(void *user) { ++*(int *)user; }

static tt_status remove_itself(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                               int64_t out_count, void *user) {
    assert_true(in_count == 1 && out_count == 1 && in[0] && out[0]);
    assert_int_equal(tt_module_remove_hook(module, module->hooks[0].handle), TT_OK);
    assert_int_equal(*(int *)user, 0); /* it is still in use */
    return TT_OK;
}

static void what_hooks_own_is_released_once(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    int removed = 0, itself = 0, with_module = 0, refused = 0;
    int64_t handle = 0;
    tt_module *m = new_same();
    assert_int_equal(tt_module_register_forward_hook(NULL, m, remove_itself, &itself, .destroy = count_release), TT_OK);
    assert_int_equal(tt_module_register_forward_pre_hook(&handle, m, before, &removed, .destroy = count_release),
                     TT_OK);
    assert_int_equal(tt_module_remove_hook(m, handle), TT_OK);
    assert_true(removed == 1 && itself == 0);
    assert_true(value_of(tt_module_forward(m, number(3))) == 3);
    assert_int_equal(itself, 1);
    assert_int_equal(tt_module_register_forward_hook(NULL, m, after, &with_module, .destroy = count_release), TT_OK);
    assert_int_equal(tt_module_register_forward_hook(NULL, m, NULL, &refused, .destroy = count_release),
                     TT_ERR_INVALID);
    assert_int_equal(tt_module_register_forward_pre_hook(NULL, NULL, before, &refused, .destroy = count_release),
                     TT_ERR_INVALID);
    assert_true(refused == 2 && with_module == 0);
    tt_clear_error();
    tt_module_free(m);
    assert_true(removed == 1 && itself == 1 && with_module == 1);
}

static void a_failing_hook_fails_the_forward(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    Seen l = {.status = TT_ERR_STATE};
    tt_module *m = new_same();
    assert_int_equal(tt_module_register_forward_pre_hook(NULL, m, before, &l), TT_OK);
    assert_int_equal(tt_module_register_forward_hook(NULL, m, after, &l), TT_OK);
    tt_tensor *y = tt_module_forward(m, number(1));
    assert_null(y);
    assert_string_equal(l.text, "b");
    assert_int_equal(tt_backward(y), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "a forward pre-hook of a Same failed: no luck");
    tt_module_free(m);
}

/* ---- functions that give NULL and record nothing ---- */

static tt_tensor *silent_forward(tt_module *self, tt_tensor *x) {
    (void)self, (void)x;
    return NULL;
}

static tt_status silent_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                     int64_t out_count) {
    (void)self, (void)in, (void)in_count, (void)out_count;
    out[1] = number(1);
    return TT_OK;
}

static tt_status refuse_silently(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                 int64_t out_count) {
    (void)self, (void)in, (void)in_count, (void)out, (void)out_count;
    return TT_ERR_UNSUPPORTED;
}

static const tt_module_class silent_class = TT_MODULE_CLASS(.name = "Silent", .forward = silent_forward),
                             silent_many_class =
                                 TT_MODULE_CLASS(.name = "SilentMany", .forward_many = silent_forward_many),
                             refusing_class = TT_MODULE_CLASS(.name = "Refusing", .forward_many = refuse_silently);

static void a_silent_forward_is_named(void **state) {
    (void)state;
    tt_module *model = tt_nn_sequential(tt_nn_relu(), tt_module_new(&silent_class, NULL), tt_nn_relu()),
              *many = tt_module_new(&silent_many_class, NULL), *refusing = tt_module_new(&refusing_class, NULL);
    tt_tensor *out[2];
    for (int earlier = 0; earlier < 2; earlier++) { /* an error that was there before hides nothing */
        TT_AUTO_SCOPE;
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(model, number(1)))), TT_ERR_STATE);
        expect_error(TT_ERR_STATE, "the forward of a Silent gave NULL without an error: expected a tensor");
        if (earlier)
            tt_nn_linear(0, 0);
        assert_int_equal(tt_module_forward_many(many, TT_TENSORS(number(1)), out, 2), TT_ERR_STATE);
        assert_true(!out[0] && !out[1]);
        assert_int_equal(tt_backward(out[0]), TT_ERR_STATE);
        assert_non_null(strstr(tt_last_error(), "the forward of a SilentMany gave NULL without an error"));
        assert_true(!strstr(tt_last_error(), "the last error before: tt_nn_linear") == !earlier);
        assert_int_equal(tt_module_forward_many(refusing, TT_TENSORS(number(1)), out, 2), TT_ERR_UNSUPPORTED);
        assert_int_equal(tt_backward(out[0]), TT_ERR_UNSUPPORTED);
        assert_non_null(strstr(tt_last_error(), "the forward of a Refusing failed: "));
        tt_clear_error();
        if (!earlier)
            tt_nn_linear(0, 0);
    }
    tt_clear_error();
    tt_module_free(model);
    tt_module_free(many);
    tt_module_free(refusing);
}

static tt_status empty_input(tt_module *module, tt_tensor **in, int64_t in_count, void *user) {
    (void)module, (void)in_count;
    in[0] = NULL;
    return *(tt_status *)user;
}

static tt_status empty_output(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                              int64_t out_count, void *user) {
    (void)module, (void)in, (void)in_count, (void)out_count;
    out[0] = NULL;
    return *(tt_status *)user;
}

static void a_silent_hook_is_named(void **state) {
    (void)state;
    const struct {
        bool pre;
        tt_status status;
        const char *text;
    } cases[] = {{true, TT_OK, "the forward pre-hook of a Same gave NULL without an error"},
                 {false, TT_OK, "the forward hook of a Same gave NULL without an error"},
                 {true, TT_ERR_STATE, "a forward pre-hook of a Same failed: "},
                 {false, TT_ERR_STATE, "a forward hook of a Same failed: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TT_AUTO_SCOPE;
        tt_status status = cases[i].status;
        tt_module *m = new_same();
        tt_nn_linear(0, 0); /* an error of before, which is not the hook's */
        assert_int_equal(cases[i].pre ? tt_module_register_forward_pre_hook(NULL, m, empty_input, &status)
                                      : tt_module_register_forward_hook(NULL, m, empty_output, &status),
                         TT_OK);
        assert_int_equal(tt_backward(tt_module_forward(m, number(1))), TT_ERR_STATE);
        assert_non_null(strstr(tt_last_error(), cases[i].text));
        assert_true(cases[i].status == TT_OK || !strstr(tt_last_error(), "tt_nn_linear"));
        tt_clear_error();
        tt_module_free(m);
    }
}

/* ---- modes and conversion ---- */

static tt_module *small(void) { return tt_nn_sequential(tt_nn_linear(2, 2), tt_nn_relu()); }

static void modes_hold_for_the_tree(void **state) {
    (void)state;
    static const tt_module_class wrapper_class = TT_MODULE_CLASS(.name = "Wrapper", .wrapped = wrapped);
    tt_module *m = small(), *w = tt_module_new(&wrapper_class, m);
    assert_true(tt_module_training(m) && tt_module_training(tt_module_child(m, "1")));
    tt_module_eval(w);
    assert_false(tt_module_training(w) || tt_module_training(m) || tt_module_training(tt_module_child(m, "1")));
    tt_module_train(m);
    assert_true(tt_module_training(tt_module_child(m, "0")));
    assert_false(tt_module_training(NULL));
    tt_module_eval(NULL);
    assert_int_equal(tt_module_requires_grad_(w, false), TT_OK);
    for (int64_t i = 0; i < 2; i++)
        assert_false(tt_requires_grad(tt_module_parameters(m)->tensors[i]));
    assert_int_equal(tt_module_requires_grad_(m, true), TT_OK);
    assert_true(tt_requires_grad(tt_module_parameters(m)->tensors[1]));
    assert_int_equal(tt_module_requires_grad_(NULL, true), TT_ERR_INVALID);
    tt_clear_error();
    tt_module_free(w);
    tt_module_free(m);
}

static tt_status run_once(tt_module *m, tt_dtype dtype) {
    TT_AUTO_SCOPE;
    return tt_backward(tt_sum(tt_module_forward(m, tt_full(TT_SHAPE(3, 2), dtype, 0.3))));
}

/* Tensors, and gradients that are there, stay the same objects; values are those of tt_to(). */
static void to_converts_in_place(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = small();
    assert_int_equal(tt_module_register_buffer(m, "mean", tt_full(TT_SHAPE(2), TT_F32, 0.1)), TT_OK);
    assert_int_equal(tt_module_register_buffer(m, "count", tt_ones(TT_SHAPE(2), TT_I64)), TT_OK);
    assert_int_equal(tt_module_register_parameter(m, "tied", tt_module_parameters(m)->tensors[0]), TT_OK);
    tt_tensor *weight = tt_module_parameters(m)->tensors[0], *bias = tt_module_parameters(m)->tensors[1];
    assert_int_equal(run_once(m, TT_F32), TT_OK);
    tt_zero_grad(bias);
    tt_tensor *grad = tt_grad(weight), *wide = tt_to(tt_detach(weight), TT_F64), *wide_grad = tt_to(grad, TT_F64);
    assert_int_equal(tt_module_to(m, TT_F64), TT_OK);
    assert_ptr_equal(tt_module_parameters(m)->tensors[0], weight);
    assert_ptr_equal(tt_grad(weight), grad);
    assert_true(tt_equal(tt_detach(weight), wide) && tt_equal(grad, wide_grad) && tt_requires_grad(weight));
    assert_null(tt_grad(bias));
    assert_int_equal(tt_tensor_dtype(tt_module_buffers(m)->tensors[0]), TT_F64);
    assert_int_equal(tt_tensor_dtype(tt_module_buffers(m)->tensors[1]), TT_I64);
    assert_int_equal(run_once(m, TT_F64), TT_OK); /* into memory of the new size */
    assert_int_equal(tt_tensor_dtype(tt_grad(bias)), TT_F64);
    assert_int_equal(tt_module_to(m, TT_F32), TT_OK);
    assert_int_equal(run_once(m, TT_F32), TT_OK);
    tt_module_free(m);
}

static void to_refuses(void **state) {
    (void)state;
    static const tt_module_class wrapper_class = TT_MODULE_CLASS(.name = "Wrapper", .wrapped = wrapped);
    tt_module *m = small(), *other = new_same();
    tt_tensor *weight = tt_module_parameters(m)->tensors[0];
    assert_int_equal(tt_module_to(m, TT_I64), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "got i64");
    assert_int_equal(tt_module_to(NULL, TT_F64), TT_ERR_INVALID);
    tt_module *w = tt_module_new(&wrapper_class, tt_module_child(m, "0"));
    assert_int_equal(tt_module_to(m, TT_F64), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "a Wrapper wraps a module");
    assert_int_equal(tt_module_to(w, TT_F64), TT_ERR_STATE);
    tt_module_free(w);
    assert_int_equal(tt_module_register_parameter(other, "tied", weight), TT_OK);
    assert_int_equal(tt_module_to(m, TT_F64), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "still uses f32 (2, 2)");
    tt_module_free(other);
    int scope = tt_scope_begin();
    tt_tensor *y = tt_module_forward(m, tt_ones(TT_SHAPE(1, 2), TT_F32)); /* its record needs the weight as it is */
    assert_int_equal(tt_module_to(m, TT_F64), TT_ERR_STATE);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    tt_scope_end(scope);
    assert_int_equal(tt_tensor_dtype(weight), TT_F32);
    assert_int_equal(tt_module_to(m, TT_F64), TT_OK);
    tt_clear_error();
    tt_module_free(m);
}

/* ---- names and constructors ---- */

static void children_have_names(void **state) {
    (void)state;
    tt_module *m = tt_nn_sequential_named({"hidden", tt_nn_linear(4, 3)}, {"act", tt_nn_sequential(tt_nn_relu())});
    EXPECT_NAMES(tt_module_parameters(m), "hidden.weight", "hidden.bias");
    static const char *const names[] = {"", "hidden", "act", "act.0"}, *const classes[] = {"Sequential", "Linear",
                                                                                           "Sequential", "ReLU"};
    const tt_named_modules *all = tt_module_named_modules(m);
    assert_int_equal(all->count, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(all->names[i], names[i]);
        assert_string_equal(tt_module_class_name(all->modules[i]), classes[i]);
    }
    assert_ptr_equal(all->modules[0], m);
    assert_int_equal(tt_module_child_count(m), 2);
    assert_string_equal(tt_module_child_name(m, 1), "act");
    assert_ptr_equal(tt_module_child_at(m, 1), tt_module_child(m, "act"));
    assert_null(tt_module_child_at(m, 2));
    assert_null(tt_module_child_name(m, -1));
    assert_int_equal(tt_module_child_count(NULL), 0);
    tt_module_free(m);
    assert_null(tt_nn_sequential_named({"a", tt_nn_relu()}, {"a", tt_nn_relu()}, {"b", tt_nn_relu()}));
    expect_error(TT_ERR_INVALID, "has a \"a\" already");
    assert_null(tt_nn_sequential_named({"a.b", tt_nn_relu()}));
    expect_error(TT_ERR_INVALID, "without dots");
    assert_null(tt_nn_sequential_named({"a", tt_nn_relu()}, {"b", tt_nn_linear(0, 1)}));
    expect_error(TT_ERR_INVALID, "tt_nn_linear");
}

/* An older program's class is shorter, a newer one's longer. */
static void classes_have_a_size(void **state) {
    (void)state;
    tt_module_class cls = same_class;
    cls.size = offsetof(tt_module_class, forward_many);
    cls.forward_many = join; /* beyond what this program knows of */
    tt_module *m = tt_module_new(&cls, NULL);
    assert_non_null(m);
    assert_null(m->cls.forward_many);
    tt_module_free(m);
    cls.size = 0;
    assert_null(tt_module_new(&cls, NULL));
    expect_error(TT_ERR_INVALID, "expected a class made by TT_MODULE_CLASS(...), got one whose size is not set");
    cls = (tt_module_class)TT_MODULE_CLASS(.name = "Nothing");
    assert_null(tt_module_new(&cls, NULL));
    expect_error(TT_ERR_INVALID, "expected a class with a name and a forward function, got \"Nothing\"");
}

/* torch.manual_seed(0); nn.Linear(7, 3, dtype=torch.float64) */
static void a_linear_in_f64_has_pytorchs_bits(void **state) {
    (void)state;
    static const double weight[] = {0.35532667022843828, 0.15709705105742983, -0.030703608992037681};
    static const double bias[] = {0.1336022173955293, -0.29501241339687378, 0.017954869229705614};
    tt_manual_seed(0);
    tt_module *m = tt_nn_linear(7, 3, .dtype = TT_F64);
    assert_memory_equal(tt_tensor_data(tt_module_parameters(m)->tensors[0]), weight, sizeof weight);
    assert_memory_equal(tt_tensor_data(tt_module_parameters(m)->tensors[1]), bias, sizeof bias);
    tt_module_free(m);
    assert_null(tt_nn_linear(7, 3, .dtype = TT_BF16));
    expect_error(TT_ERR_DTYPE, "expected dtype f32 or f64, got bf16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_state_that_is_not_trained),
        cmocka_unit_test(a_tied_weight_has_two_names),
        cmocka_unit_test(tied_trees_may_be_freed_in_any_order),
        cmocka_unit_test(several_tensors_go_in_and_come_out),
        cmocka_unit_test(failures_of_several_tensors),
        cmocka_unit_test(a_sequential_takes_what_its_first_child_takes),
        cmocka_unit_test(a_wrapper_passes_any_number_on),
        cmocka_unit_test(hooks_see_and_change_what_passes),
        cmocka_unit_test(what_hooks_own_is_released_once),
        cmocka_unit_test(a_failing_hook_fails_the_forward),
        cmocka_unit_test(a_silent_forward_is_named),
        cmocka_unit_test(a_silent_hook_is_named),
        cmocka_unit_test(modes_hold_for_the_tree),
        cmocka_unit_test(to_converts_in_place),
        cmocka_unit_test(to_refuses),
        cmocka_unit_test(children_have_names),
        cmocka_unit_test(classes_have_a_size),
        cmocka_unit_test(a_linear_in_f64_has_pytorchs_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
