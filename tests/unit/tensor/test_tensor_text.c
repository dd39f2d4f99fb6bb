/* Tensors as text: what PyTorch prints (tests/vectors/torch-text.json), where the text is cut, other devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/autograd.h>

#include "support/far_device.h"
#include "unit/vectors.h"

#include <math.h>

static tt_dtype dtype_named(const char *name) {
    for (int t = TT_F32; t <= TT_BOOL; t++)
        if (!strcmp(tt_dtype_name((tt_dtype)t), name))
            return (tt_dtype)t;
    fail_msg("no type \"%s\"", name);
    return TT_F32;
}

static double listed_value(const json_t *v) {
    if (!json_is_string(v))
        return json_number_value(v);
    const char *name = json_string_value(v);
    return !strcmp(name, "nan") ? NAN : *name == '-' ? -INFINITY : INFINITY;
}

static tt_tensor *tensor_of(const json_t *c) {
    const json_t *sizes = json_object_get(c, "shape"), *values = json_object_get(c, "values");
    tt_shape shape = {.ndim = (int)json_array_size(sizes)};
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = json_integer_value(json_array_get(sizes, (size_t)d));
    tt_tensor *x = tt_empty(shape, TT_F64);
    double *p = tt_tensor_data(x);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        p[i] = values ? listed_value(json_array_get(values, (size_t)i))
                      : vectors_member(c, "offset") + vectors_member(c, "scale") * (double)(37 * i % 211);
    x = tt_to(x, dtype_named(json_string_value(json_object_get(c, "dtype"))));
    return json_is_true(json_object_get(c, "grad")) ? tt_requires_grad_(tt_clone(x), true) : x;
}

static void text_is_that_of_pytorch(void **state) {
    (void)state;
    static char text[1 << 16];
    json_t *vectors = vectors_load("torch-text.json");
    const json_t *texts = json_object_get(vectors, "texts");
    assert_in_range(json_array_size(texts), 90, 1000);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        TT_AUTO_SCOPE;
        const json_t *c = json_array_get(texts, i);
        const char *want = json_string_value(json_object_get(c, "text"));
        size_t length = tt_tensor_text(tensor_of(c), text, sizeof text);
        if (strcmp(text, want) || length != strlen(want))
            fail_msg("case %zu: expected\n%s\ngot\n%s", i, want, text);
    }
    json_decref(vectors);
}

/* The layout of memory does not show. */
static void text_follows_the_shape(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    char text[200];
    tt_tensor *x = tt_transpose(tt_view(tt_arange(4), TT_SHAPE(2, 2)), 0, 1);
    tt_tensor_text(x, text, sizeof text);
    assert_string_equal(text, "tensor([[0, 2],\n        [1, 3]])");
    tt_tensor_text(tt_expand(tt_ones(TT_SHAPE(1), TT_F32), TT_SHAPE(3)), text, sizeof text);
    assert_string_equal(text, "tensor([1., 1., 1.])");
}

static void text_is_cut_where_the_buffer_ends(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    char text[24] = "before";
    tt_tensor *x = tt_ones(TT_SHAPE(3), TT_F32);
    assert_int_equal(tt_tensor_text(x, NULL, 0), 20);
    assert_int_equal(tt_tensor_text(x, text, 0), 20);
    assert_string_equal(text, "before");
    assert_int_equal(tt_tensor_text(x, text, 8), 20);
    assert_string_equal(text, "tensor(");
    assert_int_equal(tt_tensor_text(x, text, 1), 20);
    assert_string_equal(text, "");
    assert_int_equal(tt_tensor_text(x, text, 21), 20);
    assert_string_equal(text, "tensor([1., 1., 1.])");
    assert_int_equal(tt_tensor_text(NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
}

static void text_names_the_device(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    char text[100];
    const tt_device *far = far_device();
    tt_tensor_text(tt_to_device(tt_ones(TT_SHAPE(2), TT_F32), far), text, sizeof text);
    assert_string_equal(text, "tensor([1., 1.], device='far')");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_that_of_pytorch),
        cmocka_unit_test(text_follows_the_shape),
        cmocka_unit_test(text_is_cut_where_the_buffer_ends),
        cmocka_unit_test(text_names_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
