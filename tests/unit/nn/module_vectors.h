/* Modules beside PyTorch's: cases of a file in tests/vectors, made by make_torch_modules.py. */
#ifndef TT_TESTS_UNIT_MODULE_VECTORS_H
#define TT_TESTS_UNIT_MODULE_VECTORS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "unit/vectors.h"

#include <tutti/nn.h>

#define MODULE_VECTORS_MOST 8

/* How to make the module of a case. */
typedef struct module_case {
    const char *name;
    tt_module *(*make)(tt_dtype dtype);
    /* How to run it; NULL: tt_module_forward_many(). */
    tt_status (*forward)(tt_module *m, tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count);
} module_case;

static inline tt_shape vector_shape(const json_t *tensor) {
    const json_t *dims = json_object_get(tensor, "shape");
    tt_shape shape = {.ndim = (int)json_array_size(dims)};
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = json_integer_value(json_array_get(dims, (size_t)d));
    return shape;
}

/* Numbers of -1..1 in steps of 1/64: values() of the script. */
static inline tt_tensor *vector_values(tt_shape shape, int64_t step, tt_dtype dtype) {
    tt_tensor *x = tt_zeros(shape, TT_F64);
    double *data = tt_tensor_data(x);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        data[i] = (double)(i * step % 128 - 64) / 64;
    return tt_to(x, dtype);
}

static inline tt_dtype vector_dtype(const char *name) {
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_I64, TT_BOOL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(tt_dtype_name(types[i]), name))
            return types[i];
    fail_msg("unknown dtype %s", name);
    return TT_F32;
}

/* The tensor that is stored bit by bit. */
static inline tt_tensor *vector_stored(const json_t *tensor) {
    tt_dtype dtype = vector_dtype(json_string_value(json_object_get(tensor, "dtype")));
    const char *bits = json_string_value(json_object_get(tensor, "hex"));
    tt_tensor *x = tt_zeros(vector_shape(tensor), dtype);
    unsigned char *data = tt_tensor_data(x);
    for (size_t i = 0; i < (size_t)tt_tensor_numel(x) * tt_dtype_size(dtype); i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(bits + 2 * i, "%2x", &byte), 1);
        data[i] = (unsigned char)byte;
    }
    return x;
}

/* Expect |x - y| to be at most `part` of the largest |y| (of 1, if that is larger). */
static inline void expect_close(const char *which, const char *name, tt_tensor *x, tt_tensor *y, double part) {
    double worst = 0, largest = 1;
    if (!x || !y || tt_tensor_numel(x) != tt_tensor_numel(y) || tt_tensor_dim(x) != tt_tensor_dim(y))
        fail_msg("%s %s: missing, or of another shape: %s", which, name, tt_last_error());
    TT_NO_GRAD;
    assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(tt_to(x, TT_F64), tt_to(y, TT_F64)))), &worst), TT_OK);
    assert_int_equal(tt_item(tt_max(tt_abs(tt_to(y, TT_F64))), &largest), TT_OK);
    if (!(worst <= part * fmax(1, largest)))
        fail_msg("%s %s: differs by %g where the largest is %g", which, name, worst, largest);
}

static inline void expect_state_bits(const json_t *c, tt_module *m) {
    const json_t *state = json_object_get(c, "state");
    const tt_named_tensors *ours = tt_module_state_dict(m);
    assert_int_equal(ours->count, json_array_size(state));
    for (size_t i = 0; i < json_array_size(state); i++) {
        const json_t *theirs = json_array_get(state, i);
        assert_string_equal(ours->names[i], json_string_value(json_object_get(theirs, "name")));
        if (!tt_equal(ours->tensors[i], vector_stored(theirs)))
            fail_msg("the initial bits of %s differ", ours->names[i]);
    }
}

static inline int64_t vector_inputs(const json_t *c, tt_dtype dtype, tt_tensor **in) {
    const json_t *inputs = json_object_get(c, "inputs");
    int64_t n = (int64_t)json_array_size(inputs);
    assert_true(n <= MODULE_VECTORS_MOST);
    for (int64_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(inputs, (size_t)i);
        in[i] = json_object_get(x, "hex") ? vector_stored(x)
                                          : tt_requires_grad_(vector_values(vector_shape(x), 29 + 2 * i, dtype), true);
    }
    return n;
}

static inline void vector_backward(tt_tensor *const *out, int64_t n) {
    tt_tensor *loss = NULL;
    for (int64_t i = 0; i < n; i++) {
        tt_shape shape = {.ndim = tt_tensor_dim(out[i])};
        for (int d = 0; d < shape.ndim; d++)
            shape.dim[d] = tt_tensor_size(out[i], d);
        tt_tensor *part = tt_sum(tt_mul(out[i], vector_values(shape, 37 + 2 * i, tt_tensor_dtype(out[i]))));
        loss = loss ? tt_add(loss, part) : part;
    }
    assert_int_equal(tt_backward(loss), TT_OK);
}

static inline void expect_gradients(const json_t *c, tt_module *m, tt_tensor *const *in, double part) {
    const json_t *grads = json_object_get(c, "grads"), *input_grads = json_object_get(c, "input_grads");
    for (size_t i = 0; i < json_array_size(input_grads); i++)
        if (!json_is_null(json_array_get(input_grads, i)))
            expect_close("the gradient of", "an input", tt_grad(in[i]), vector_stored(json_array_get(input_grads, i)),
                         part);
    for (size_t i = 0; i < json_array_size(grads); i++) {
        const json_t *g = json_array_get(grads, i);
        const char *name = json_string_value(json_object_get(g, "name"));
        tt_tensor *ours = tt_named_tensors_find(tt_module_parameters(m), name);
        expect_close("the gradient of", name, tt_grad(ours), vector_stored(g), part);
    }
}

/* The case of this name: initial bits, results, gradients. */
static inline void expect_module_like_torch(const json_t *c, const module_case *ours) {
    TT_AUTO_SCOPE;
    tt_tensor *in[MODULE_VECTORS_MOST], *out[MODULE_VECTORS_MOST];
    tt_dtype dtype = vector_dtype(json_string_value(json_object_get(c, "dtype")));
    const json_t *outputs = json_object_get(c, "outputs");
    double part = dtype == TT_F64 ? 1e-12 : 1e-5;
    tt_manual_seed((uint64_t)json_integer_value(json_object_get(c, "seed")));
    tt_module *m = ours->make(dtype);
    if (!m)
        fail_msg("%s: %s", ours->name, tt_last_error());
    expect_state_bits(c, m);
    int64_t inputs = vector_inputs(c, dtype, in), n = (int64_t)json_array_size(outputs);
    if ((ours->forward ? ours->forward : tt_module_forward_many)(m, in, inputs, out, n))
        fail_msg("%s: %s", ours->name, tt_last_error());
    for (int64_t i = 0; i < n; i++)
        expect_close("a result of", ours->name, out[i], vector_stored(json_array_get(outputs, (size_t)i)), part);
    vector_backward(out, n);
    expect_gradients(c, m, in, part);
    tt_module_free(m);
}

/* All cases of the file `json` whose names begin with `first`: each has a line in `ours`, and each line a case. */
static inline void expect_modules_like_torch(const char *json, const char *first, const module_case *ours,
                                             size_t count) {
    json_t *file = vectors_load(json), *cases = json_object_get(file, "cases");
    size_t met = 0;
    assert_non_null(cases);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *name = json_string_value(json_object_get(c, "name"));
        if (strncmp(name, first, strlen(first)))
            continue;
        size_t k = 0;
        while (k < count && strcmp(ours[k].name, name))
            k++;
        if (k == count)
            fail_msg("no module for the case \"%s\"", name);
        print_message("%s\n", name);
        expect_module_like_torch(c, &ours[k]);
        met++;
    }
    assert_int_equal(met, count);
    json_decref(file);
}

#endif
