/* 100 steps of every optimizer, beside its options, are PyTorch's to the bit (tests/vectors/make_torch_optim.py). */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "base/hash.h"
#include "unit/autograd/gradcheck.h"
#include "unit/vectors.h"

enum { N = 19, STEPS = 100 };

/* Make x's gradient exactly `g`: that of sum(x * g). */
static void set_grad(tt_tensor *x, tt_tensor *g) {
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_sum(tt_mul(x, g))), TT_OK);
}

static double element(const tt_tensor *x, size_t i) {
    const void *data = tt_tensor_data((tt_tensor *)x);
    return tt_tensor_dtype(x) == TT_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

/* Vectors have the digits of one more than a type can tell apart. */
static double rounded(const json_t *want, size_t i, tt_dtype dtype) {
    double number = vectors_number(want, i);
    return dtype == TT_F32 ? (double)(float)number : number;
}

static void assert_elements(const tt_tensor *x, const json_t *want, const char *what) {
    assert_non_null(x);
    for (size_t i = 0; i < N; i++)
        if (element(x, i) != rounded(want, i, tt_tensor_dtype(x)))
            fail_msg("%s, element %zu: expected %.17g, got %.17g", what, i, vectors_number(want, i), element(x, i));
}

static tt_optimizer *make(const char *kind, const tt_named_tensors *params) {
    if (!strcmp(kind, "sgd"))
        return tt_sgd(params, 0);
    if (!strcmp(kind, "adam"))
        return tt_adam(params, 0);
    if (!strcmp(kind, "adamw"))
        return tt_adamw(params, 0, 0);
    if (!strcmp(kind, "rmsprop"))
        return tt_rmsprop(params, 0);
    if (!strcmp(kind, "adagrad"))
        return tt_adagrad(params, 0);
    assert_string_equal(kind, "adadelta");
    return tt_adadelta(params, 0);
}

static void set_options(tt_optimizer *o, json_t *options) {
    const char *name;
    json_t *value;
    json_object_foreach(options, name, value) {
        double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        assert_int_equal(tt_optimizer_set_option(o, 0, name, number), TT_OK);
    }
}

/* All of PyTorch's state is there under its name, to the bit, and nothing else. */
static void check_state(tt_optimizer *o, json_t *want) {
    const tt_named_tensors *dict = tt_optimizer_state_dict(o);
    const char *name;
    json_t *numbers;
    json_object_foreach(want, name, numbers) {
        char full[64];
        snprintf(full, sizeof full, "state.0.%s", name);
        assert_elements(tt_named_tensors_find(dict, full), numbers, full);
    }
    size_t slots = 0;
    for (int64_t i = 0; i < dict->count; i++)
        slots += !strncmp(dict->names[i], "state.", 6) && tt_tensor_dtype(dict->tensors[i]) != TT_I64;
    assert_int_equal(slots, json_object_size(want));
}

static void check_case(const json_t *c) {
    TT_AUTO_SCOPE;
    const char *kind = json_string_value(json_object_get(c, "kind"));
    const tt_dtype dtype = strcmp(json_string_value(json_object_get(c, "dtype")), "f32") ? TT_F64 : TT_F32;
    tt_tensor *x = tt_requires_grad_(gradcheck_row(N, 0, dtype), true);
    tt_optimizer *o = make(kind, TT_NAMED_TENSORS(1, (const char *[]){"x"}, &x));
    set_options(o, json_object_get(c, "options"));
    uint64_t digest = TT__FNV;
    for (int s = 1; s <= STEPS; s++) {
        TT_AUTO_SCOPE;
        set_grad(x, gradcheck_row(N, s, dtype));
        assert_int_equal(tt_optimizer_step(o), TT_OK);
        digest = tt__fnv_bytes(digest, tt_tensor_data(x), N * tt_dtype_size(dtype));
        char step[16];
        snprintf(step, sizeof step, "%d", s);
        const json_t *want = json_object_get(json_object_get(c, "params"), step);
        if (want)
            assert_elements(x, want, kind);
    }
    char bits[20];
    snprintf(bits, sizeof bits, "%016" PRIx64, digest);
    assert_string_equal(bits, json_string_value(json_object_get(c, "bits")));
    check_state(o, json_object_get(c, "state"));
    tt_optimizer_free(o);
}

static void steps_are_pytorchs_to_the_bit(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-optim.json");
    assert_non_null(vectors);
    const json_t *cases = json_object_get(vectors, "optimizers");
    assert_int_equal(json_array_size(cases), 42);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(vectors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_pytorchs_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
