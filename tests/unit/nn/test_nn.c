/* Modules: names, ownership, initial weights, state dicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "nn/module.h"
#include "tensor/core/tensor.h"
#include "unit/expect.h"

static tt_module *mlp(void) { return tt_nn_sequential(tt_nn_linear(4, 3), tt_nn_relu(), tt_nn_linear(3, 2)); }

static void parameters_have_pytorch_names(void **state) {
    (void)state;
    tt_module *m = mlp();
    static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};
    const tt_named_tensors *p = tt_module_parameters(m);
    assert_int_equal(p->count, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(p->names[i], names[i]);
        assert_true(tt_requires_grad(p->tensors[i]));
    }
    assert_string_equal(TT__DESCRIBE(p->tensors[0]), "f32 (3, 4)");
    assert_ptr_equal(tt_module_parameters(m)->names, p->names); /* the list is kept */
    tt_tensor_free(p->tensors[0]);
    expect_error(TT_ERR_STATE, "belongs to a module");
    tt_module_free(m);
}

/* The first values of torch.manual_seed(0); nn.Linear(784, 512). */
static void initial_weights_are_pytorchs(void **state) {
    (void)state;
    tt_manual_seed(0);
    tt_module *m = tt_nn_linear(784, 512);
    const float *w = tt_tensor_f32(tt_module_parameters(m)->tensors[0]);
    assert_true(w[0] == -0.000267386436f);
    tt_module_free(m);
    tt_manual_seed(1);
    tt_generator *g = tt_generator_new(0);
    m = tt_nn_linear(784, 512, .generator = g, .no_bias = true);
    assert_true(tt_tensor_f32(tt_module_parameters(m)->tensors[0])[0] == -0.000267386436f);
    assert_int_equal(tt_module_parameters(m)->count, 1);
    tt_module_free(m);
    tt_generator_free(g);
}

/* A module of one's own: two named children and a parameter, forward through all. */
typedef struct toy {
    tt_module *net1, *net2;
    tt_tensor *shift;
    int *destroyed;
} toy;

static tt_tensor *toy_forward(tt_module *self, tt_tensor *x) {
    const toy *t = tt_module_user(self);
    return tt_add(tt_module_forward(t->net2, tt_relu(tt_module_forward(t->net1, x))), t->shift);
}

static void toy_destroy(tt_module *self) { ++*((toy *)tt_module_user(self))->destroyed; }

static const tt_module_class toy_class =
    TT_MODULE_CLASS(.name = "ToyModel", .forward = toy_forward, .destroy = toy_destroy);

static void modules_of_ones_own(void **state) {
    (void)state;
    int destroyed = 0;
    toy t = {.net1 = tt_nn_linear(4, 3),
             .net2 = tt_nn_linear(3, 2),
             .shift = tt_ones(TT_SHAPE(2), TT_F32),
             .destroyed = &destroyed};
    tt_module *m = tt_module_new(&toy_class, &t);
    assert_int_equal(tt_module_add_module(m, "net1", t.net1), TT_OK);
    assert_int_equal(tt_module_add_module(m, "net2", t.net2), TT_OK);
    assert_int_equal(tt_module_parameters(m)->count, 4);
    assert_int_equal(tt_module_register_parameter(m, "shift", t.shift), TT_OK);
    static const char *const names[] = {"shift", "net1.weight", "net1.bias", "net2.weight", "net2.bias"};
    const tt_named_tensors *p = tt_module_parameters(m);
    assert_int_equal(p->count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(p->names[i], names[i]);
    assert_ptr_equal(tt_module_child(m, "net2"), t.net2);
    assert_null(tt_module_child(m, "net3"));
    expect_error(TT_ERR_NOT_FOUND, "no child \"net3\" in ToyModel");
    {
        TT_AUTO_SCOPE;
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(m, tt_ones(TT_SHAPE(5, 4), TT_F32)))), TT_OK);
        assert_true(tt_tensor_f32(tt_grad(t.shift))[0] == 5);
        assert_null(tt_module_forward(m, NULL));
        assert_null(tt_module_forward(NULL, t.shift));
    }
    tt_module_free(t.net1);
    expect_error(TT_ERR_STATE, "this Linear belongs to a ToyModel; free the root");
    tt_module_free(m);
    assert_int_equal(destroyed, 1);
}

static void trees_refuse(void **state) {
    (void)state;
    int destroyed = 0;
    toy t = {.destroyed = &destroyed};
    tt_module *m = tt_module_new(&toy_class, &t), *a = tt_nn_relu();
    assert_int_equal(tt_module_add_module(m, "a", a), TT_OK);
    assert_int_equal(tt_module_add_module(m, "a", tt_nn_relu()), TT_ERR_INVALID); /* freed */
    expect_error(TT_ERR_INVALID, "has a \"a\" already");
    assert_int_equal(tt_module_add_module(m, "b.c", tt_nn_relu()), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "without dots");
    assert_int_equal(tt_module_add_module(m, "", tt_nn_relu()), TT_ERR_INVALID);
    assert_int_equal(tt_module_add_module(m, "again", a), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "belongs to a ToyModel already");
    assert_int_equal(tt_module_add_module(a, "up", m), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "inside itself");
    assert_int_equal(tt_module_add_module(m, "null", NULL), TT_ERR_INVALID);
    tt_tensor *x = tt_arange(3);
    assert_int_equal(tt_module_register_parameter(m, "x", x), TT_ERR_DTYPE);
    tt_tensor_free(x); /* still ours */
    expect_error(TT_ERR_DTYPE, "expected \"x\" of a floating type, got i64 (3)");
    tt_module_free(m);
    tt_module_free(NULL);
    assert_null(tt_module_new(NULL, NULL));
    tt_clear_error();
}

static void constructors_refuse(void **state) {
    (void)state;
    assert_null(tt_nn_linear(0, 5));
    expect_error(TT_ERR_INVALID, "in_features 0, out_features 5");
    assert_null(tt_nn_linear_with(NULL, 0));
    expect_error(TT_ERR_INVALID, "in_features 0, out_features 0");
    assert_null(tt_nn_linear(5, INT64_MAX / 2));
    expect_error(TT_ERR_SHAPE, "tt_nn_linear");
    assert_null(tt_nn_sequential_with(&(tt_nn_sequential_args){.count = 2}, sizeof(tt_nn_sequential_args)));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_null(tt_nn_sequential(tt_nn_relu(), tt_nn_linear(3, -1), tt_nn_flatten())); /* the other two are freed */
    expect_error(TT_ERR_INVALID, "tt_nn_linear");
    tt_module *twice = tt_nn_relu();
    assert_null(tt_nn_sequential(twice, tt_nn_relu(), twice));
    expect_error(TT_ERR_STATE, "child 2 belongs to a module already");
    tt_module *inside = tt_nn_relu(), *outer = tt_nn_sequential(inside);
    assert_null(tt_nn_sequential(tt_nn_relu(), inside));
    expect_error(TT_ERR_STATE, "child 1");
    tt_module_free(outer);
    assert_null(tt_module_parameters(NULL));
    assert_null(tt_module_buffers(NULL));
    assert_null(tt_module_state_dict(NULL));
    assert_null(tt_module_named_modules(NULL));
    assert_null(tt_named_tensors_find(NULL, "x"));
}

static void a_module_outlives_the_scope_it_was_made_in(void **state) {
    (void)state;
    int id = tt_scope_begin();
    tt_module *m = mlp();
    tt_scope_end(id);
    TT_AUTO_SCOPE;
    tt_tensor *y = tt_module_forward(m, tt_ones(TT_SHAPE(1, 4), TT_F32));
    assert_string_equal(TT__DESCRIBE(y), "f32 (1, 2)");
    tt_module_free(m); /* y's record still holds what backward needs */
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
}

static void flatten_keeps_the_batch(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_flatten();
    assert_string_equal(TT__DESCRIBE(tt_module_forward(m, tt_ones(TT_SHAPE(2, 1, 3, 3), TT_F32))), "f32 (2, 9)");
    tt_module_free(m);
}

/* ---- wrappers ---- */

static tt_module *wrapper_wrapped(tt_module *self) { return tt_module_user(self); }

static const tt_module_class wrapper_class = TT_MODULE_CLASS(.name = "Wrapper", .wrapped = wrapper_wrapped);

static void a_wrapper_shows_the_wrapped_modules_parameters(void **state) {
    (void)state;
    tt_module *m = mlp(), *w = tt_module_new(&wrapper_class, m), *ww = tt_module_new(&wrapper_class, w);
    assert_ptr_equal(tt_module_parameters(ww)->names, tt_module_parameters(m)->names);
    assert_ptr_equal(tt_module_state_dict(w)->tensors, tt_module_state_dict(m)->tensors);
    assert_ptr_equal(tt__module_class(w), &wrapper_class);
    assert_ptr_equal(tt_module_child(ww, "2"), tt_module_child(m, "2"));
    assert_int_equal(tt_module_child_count(w), 3);
    assert_int_equal(tt_module_add_module(w, "x", tt_nn_relu()), TT_ERR_STATE);
    tt_clear_error();
    tt_module *tree = tt_nn_sequential(ww); /* inside a tree it adds no level of names */
    const tt_named_tensors *p = tt_module_parameters(tree);
    assert_int_equal(p->count, 4);
    assert_string_equal(p->names[3], "0.2.bias");
    /* What the wrapped one gets shows in all that show it. */
    assert_int_equal(tt_module_add_module(m, "3", tt_nn_linear(2, 2)), TT_OK);
    assert_int_equal(tt_module_parameters(ww)->count, 6);
    assert_string_equal(tt_module_parameters(tree)->names[5], "0.3.bias");
    assert_int_equal(tt_module_add_module(tt_module_child(m, "3"), "loop", w), TT_ERR_INVALID); /* and frees nothing */
    expect_error(TT_ERR_INVALID, "cannot be inside itself");
    tt_module_free(tree);
    tt_module_free(w);
    tt_module_free(m);
    assert_null(tt_module_new(&wrapper_class, NULL));
    expect_error(TT_ERR_INVALID, "a Wrapper needs a module to wrap, got NULL");
}

static void check_forward(tt_module *m) {
    TT_AUTO_SCOPE;
    assert_string_equal(TT__DESCRIBE(tt_module_forward(m, tt_ones(TT_SHAPE(1, 4), TT_F32))), "f32 (1, 2)");
}

static void a_wrapped_module_may_be_freed_first(void **state) {
    (void)state;
    tt_module *m = mlp(), *w = tt_module_new(&wrapper_class, m);
    tt_module_free(w); /* the ordinary order */
    check_forward(m);
    w = tt_module_new(&wrapper_class, m);
    tt_module *w2 = tt_module_new(&wrapper_class, w);
    tt_module_free(m);
    tt_module_free(w);
    check_forward(w2); /* kept as long as it is wrapped */
    assert_int_equal(tt_module_parameters(w2)->count, 4);
    tt_module_free(m);
    expect_error(TT_ERR_STATE, "this Sequential was freed already; a Wrapper that wraps it keeps it");
    tt_module *other = tt_nn_sequential(tt_nn_relu());
    assert_int_equal(tt_module_add_module(other, "x", m), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "\"x\" was freed already");
    tt_module_free(other);
    tt_module_free(w2);
}

/* A part of a tree that is wrapped lives on when the tree goes. */
static void a_wrapped_part_outlives_its_tree(void **state) {
    (void)state;
    tt_module *m = mlp(), *w = tt_module_new(&wrapper_class, tt_module_child(m, "0"));
    tt_module_free(m);
    TT_AUTO_SCOPE;
    assert_string_equal(TT__DESCRIBE(tt_module_forward(w, tt_ones(TT_SHAPE(1, 4), TT_F32))), "f32 (1, 3)");
    assert_string_equal(tt_module_parameters(w)->names[0], "weight");
    tt_module_free(w);
}

/* ---- state dicts ---- */

static void load(tt_module *m, int64_t n, const char *const *names, tt_tensor *const *tensors, tt_status status,
                 const char *what) {
    const tt_named_tensors *own = tt_module_parameters(m);
    TT_AUTO_SCOPE;
    tt_tensor *before[4];
    for (int i = 0; i < 4; i++)
        before[i] = tt_clone(own->tensors[i]);
    assert_int_equal(tt_module_load_state_dict(m, TT_NAMED_TENSORS(n, names, tensors)), status);
    if (!status)
        return;
    expect_error(status, what);
    for (int i = 0; i < 4; i++)
        assert_true(tt_equal(before[i], own->tensors[i])); /* all or nothing */
}

static void state_dicts_load_strictly(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = mlp();
    tt_tensor *w0 = tt_ones(TT_SHAPE(3, 4), TT_F32), *b0 = tt_ones(TT_SHAPE(3), TT_F32);
    tt_tensor *w2 = tt_ones(TT_SHAPE(2, 3), TT_F32), *b2 = tt_ones(TT_SHAPE(2), TT_F32);
    tt_tensor *good[] = {b2, w2, w0, b0, b0};
    const char *names[] = {"2.bias", "2.weight", "0.weight", "0.bias", "0.bias"};
    load(m, 3, names, good, TT_ERR_NOT_FOUND, "entry \"0.bias\" is missing");
    load(m, 5, names, good, TT_ERR_INVALID, "twice");
    names[4] = "3.bias";
    load(m, 5, names, good, TT_ERR_NOT_FOUND, "unexpected entry \"3.bias\"");
    good[2] = tt_ones(TT_SHAPE(4, 3), TT_F32);
    load(m, 4, names, good, TT_ERR_SHAPE, "\"0.weight\": expected f32 (3, 4), got f32 (4, 3)");
    good[2] = tt_ones(TT_SHAPE(3, 4), TT_F64);
    load(m, 4, names, good, TT_ERR_DTYPE, "\"0.weight\": expected f32 (3, 4), got f64 (3, 4)");
    good[2] = tt_transpose(tt_ones(TT_SHAPE(4, 3), TT_F32), 0, 1); /* any layout */
    load(m, 4, names, good, TT_OK, NULL);
    for (size_t i = 0; i < 4; i++)
        assert_true(tt_tensor_f32(tt_module_parameters(m)->tensors[i])[1] == 1);
    tt_module_free(m);
    assert_int_equal(tt_module_load_state_dict(NULL, TT_NAMED_TENSORS(0, NULL, NULL)), TT_ERR_INVALID);
    tt_clear_error();
}

/* One error tells all that is wrong; a list that is too long says how much of it is left out. */
static void all_mismatches_are_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = mlp();
    tt_tensor *tensors[] = {tt_ones(TT_SHAPE(4, 3), TT_F32), tt_ones(TT_SHAPE(3), TT_F64),
                            tt_ones(TT_SHAPE(2), TT_F32)};
    const char *names[] = {"0.weight", "0.bias", "9.bias"};
    load(m, 3, names, tensors, TT_ERR_NOT_FOUND,
         "tt_module_load_state_dict: entry \"2.weight\" is missing; entry \"2.bias\" is missing; unexpected entry "
         "\"9.bias\": the module has no such tensor; \"0.weight\": expected f32 (3, 4), got f32 (4, 3); \"0.bias\": "
         "expected f32 (3), got f64 (3)");
    enum { MANY = 200 };
    static char texts[MANY][24];
    const char *many[MANY];
    tt_tensor *same[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "layer.%d.weight", i);
        many[i] = texts[i];
        same[i] = tensors[0];
    }
    assert_int_equal(tt_module_load_state_dict(m, TT_NAMED_TENSORS(MANY, many, same)), TT_ERR_NOT_FOUND);
    assert_non_null(strstr(tt_last_error(), "\"layer.3.weight\""));
    expect_error(TT_ERR_NOT_FOUND, " more");
    tt_module_free(m);
}

static void what_fits_is_loaded(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = mlp();
    tt_tensor *sevens = tt_full(TT_SHAPE(3), TT_F32, 7), *tensors[] = {sevens, sevens};
    const char *names[] = {"head.bias", "9.bias"};
    const tt_named_tensors *given = TT_NAMED_TENSORS(2, names, tensors);
    const tt_rename renames[] = {{"head.", "0."}, {"", "none."}};
    float before = tt_tensor_f32(tt_named_tensors_find(tt_module_parameters(m), "2.bias"))[0];
    assert_int_equal(tt_module_load_state_dict(m, given, .not_strict = true, .renames = renames, .rename_count = 2),
                     TT_OK);
    assert_true(tt_equal(tt_named_tensors_find(tt_module_parameters(m), "0.bias"), sevens));
    assert_true(tt_tensor_f32(tt_named_tensors_find(tt_module_parameters(m), "2.bias"))[0] == before);
    /* A shape that differs is an error all the same. */
    names[0] = "2.bias";
    assert_int_equal(tt_module_load_state_dict(m, given, .not_strict = true), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "\"2.bias\": expected f32 (2), got f32 (3)");
    assert_int_equal(tt_module_load_state_dict(m, given, .rename_count = 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, ".renames");
    assert_int_equal(tt_module_load_state_dict(m, given, .renames = (tt_rename[]){{"a", NULL}}, .rename_count = 1),
                     TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "two texts");
    tt_module_free(m);
}

static void a_module_prefix_is_accepted(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *a = mlp(), *b = mlp();
    const tt_named_tensors *own = tt_module_state_dict(a);
    static const char *const names[] = {"module.0.weight", "module.0.bias", "module.2.weight", "module.2.bias"};
    assert_int_equal(tt_module_load_state_dict(b, TT_NAMED_TENSORS(4, names, own->tensors)), TT_OK);
    for (size_t i = 0; i < 4; i++)
        assert_true(tt_equal(own->tensors[i], tt_module_state_dict(b)->tensors[i]));
    /* A module with a child of that name keeps its own meaning of it. */
    int destroyed = 0;
    toy t = {.destroyed = &destroyed};
    tt_module *named = tt_module_new(&toy_class, &t);
    assert_int_equal(tt_module_add_module(named, "module", a), TT_OK);
    assert_int_equal(tt_module_load_state_dict(named, TT_NAMED_TENSORS(4, names, tt_module_state_dict(b)->tensors)),
                     TT_OK);
    tt_module_free(named);
    tt_module_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_pytorch_names),
        cmocka_unit_test(initial_weights_are_pytorchs),
        cmocka_unit_test(modules_of_ones_own),
        cmocka_unit_test(trees_refuse),
        cmocka_unit_test(constructors_refuse),
        cmocka_unit_test(a_module_outlives_the_scope_it_was_made_in),
        cmocka_unit_test(flatten_keeps_the_batch),
        cmocka_unit_test(a_wrapper_shows_the_wrapped_modules_parameters),
        cmocka_unit_test(a_wrapped_module_may_be_freed_first),
        cmocka_unit_test(a_wrapped_part_outlives_its_tree),
        cmocka_unit_test(state_dicts_load_strictly),
        cmocka_unit_test(all_mismatches_are_told),
        cmocka_unit_test(what_fits_is_loaded),
        cmocka_unit_test(a_module_prefix_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
