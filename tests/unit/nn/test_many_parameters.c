/* Modules of very many tensors: the time that names take grows with their number, not with its square. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include <tutti/nn.h>
#include <tutti/optim.h>

enum { MANY = 20000 };

static tt_tensor *same_forward(tt_module *self, tt_tensor *x) {
    (void)self;
    return x;
}

static const tt_module_class holder_class = TT_MODULE_CLASS(.name = "Holder", .forward = same_forward);

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static tt_module *empty_module(void) { return tt_module_new(&holder_class, NULL); }

static tt_tensor *one_number(double value) { return tt_full(TT_SHAPE(1), TT_F32, value); }

static void register_many(tt_module *m, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "weight_%" PRId64, i);
        assert_int_equal(tt_module_register_parameter(m, name, one_number((double)i)), TT_OK);
    }
}

static void add_many_layers(tt_module *m, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        char name[32];
        tt_module *layer = empty_module();
        snprintf(name, sizeof name, "layer_%" PRId64, i);
        assert_int_equal(tt_module_register_parameter(layer, "weight", one_number((double)i)), TT_OK);
        assert_int_equal(tt_module_add_module(m, name, layer), TT_OK);
    }
}

static void expect_list(tt_module *m, const char *first, int64_t n) {
    const tt_named_tensors *all = tt_module_parameters(m);
    assert_int_equal(all->count, n);
    assert_string_equal(all->names[0], first);
    for (int64_t i = 0; i < n; i++)
        assert_true(tt_tensor_f32(all->tensors[i])[0] == (float)i);
}

/* Step once, and put the optimizer's state back. */
static void optimize(tt_module *m) {
    const tt_named_tensors *all = tt_module_parameters(m);
    tt_optimizer *sgd = tt_sgd(all, 0.1, .momentum = 0.9);
    for (int64_t i = 0; i < all->count; i++) {
        TT_AUTO_SCOPE;
        assert_int_equal(tt_backward(tt_sum(all->tensors[i])), TT_OK);
    }
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_int_equal(tt_optimizer_load_state_dict(sgd, tt_optimizer_state_dict(sgd)), TT_OK);
    tt_optimizer_free(sgd);
}

/* Seconds of the processor: register, list, load and optimize n tensors, in one module and in n layers. */
static double time_of(int64_t n) {
    TT_AUTO_SCOPE;
    double began = cpu_seconds();
    tt_module *flat = empty_module(), *layers = empty_module();
    register_many(flat, n);
    add_many_layers(layers, n);
    expect_list(flat, "weight_0", n);
    expect_list(layers, "layer_0.weight", n);
    assert_int_equal(tt_module_load_state_dict(flat, tt_module_state_dict(flat)), TT_OK);
    assert_int_equal(tt_module_load_state_dict(layers, tt_module_state_dict(layers)), TT_OK);
    optimize(flat);
    tt_module_free(flat);
    tt_module_free(layers);
    return cpu_seconds() - began;
}

static void time_grows_with_the_number(void **state) {
    (void)state;
    time_of(MANY / 8);
    double few = time_of(MANY / 8), many = time_of(MANY);
    for (int i = 0; i < 2; i++) {
        double again = time_of(MANY / 8);
        few = again > few ? again : few;
    }
    print_message("%d tensors: %.3f s, %d: %.3f s\n", MANY / 8, few, MANY, many);
    assert_true(many < 8 * 4 * few + 0.1); /* the square would be 64 times as much */
}

/* Seconds to make an optimizer of n parameters. */
static double optimizer_time(int64_t n) {
    TT_AUTO_SCOPE;
    const char **names = calloc((size_t)n, sizeof *names);
    tt_tensor **tensors = calloc((size_t)n, sizeof *tensors);
    for (int64_t i = 0; i < n; i++) {
        names[i] = "weight";
        tensors[i] = tt_requires_grad_(one_number(0), true);
    }
    const tt_named_tensors all = {.size = sizeof all, .count = n, .names = names, .tensors = tensors};
    double began = cpu_seconds();
    tt_optimizer *sgd = tt_sgd(&all, 0.1);
    double took = cpu_seconds() - began;
    assert_non_null(sgd);
    tt_optimizer_free(sgd);
    free(tensors);
    free(names);
    return took;
}

static void an_optimizer_looks_up_its_parameters(void **state) {
    (void)state;
    double took = optimizer_time(80000); /* 2 s where each is compared with all others */
    print_message("an optimizer of 80000 parameters: %.3f s\n", took);
    assert_true(took < 0.5);
}

static void names_stay_unique(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = empty_module();
    for (int64_t i = 0; i < 40; i++) { /* both kinds share their names, with few of them and with many */
        char name[32], layer[32];
        snprintf(name, sizeof name, "weight_%" PRId64, i);
        snprintf(layer, sizeof layer, "layer_%" PRId64, i);
        assert_int_equal(tt_module_register_parameter(m, name, one_number(0)), TT_OK);
        assert_int_equal(tt_module_add_module(m, layer, empty_module()), TT_OK);
        assert_int_equal(tt_module_register_parameter(m, name, one_number(0)), TT_ERR_INVALID);
        assert_int_equal(tt_module_register_parameter(m, layer, one_number(0)), TT_ERR_INVALID);
        assert_int_equal(tt_module_add_module(m, name, empty_module()), TT_ERR_INVALID);
        assert_ptr_equal(tt_module_child(m, layer), tt_module_child_at(m, i));
        assert_null(tt_module_child(m, name));
    }
    assert_int_equal(tt_module_parameters(m)->count, 40);
    tt_clear_error();
    tt_module_free(m);
}

/* One tensor under many names is listed once, and its entries must agree. */
static void a_tied_tensor_is_listed_once(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = empty_module();
    tt_tensor *x = one_number(3);
    for (int64_t i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "weight_%" PRId64, i);
        assert_int_equal(tt_module_register_parameter(m, name, i % 2 ? x : one_number((double)i)), TT_OK);
    }
    assert_int_equal(tt_module_parameters(m)->count, 51);
    assert_int_equal(tt_module_state_dict(m)->count, 100);
    const char *names[100];
    tt_tensor *tensors[100];
    for (int i = 0; i < 100; i++) {
        names[i] = tt_module_state_dict(m)->names[i];
        tensors[i] = one_number(i % 2 ? 7 : i);
    }
    assert_int_equal(tt_module_load_state_dict(m, TT_NAMED_TENSORS(100, names, tensors)), TT_OK);
    assert_true(tt_tensor_f32(x)[0] == 7);
    tensors[77] = one_number(8);
    assert_int_equal(tt_module_load_state_dict(m, TT_NAMED_TENSORS(100, names, tensors)), TT_ERR_INVALID);
    tt_clear_error();
    tt_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_grows_with_the_number),
        cmocka_unit_test(an_optimizer_looks_up_its_parameters),
        cmocka_unit_test(names_stay_unique),
        cmocka_unit_test(a_tied_tensor_is_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
