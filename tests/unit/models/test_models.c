/* Ready models: beside PyTorch and torchvision (tests/vectors/make_torch_models.py), layouts, dropout, wrong
 * options. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>
#include <tutti/models.h>

#include "unit/expect.h"
#include "unit/vectors.h"

static json_t *vectors;

static int load_vectors(void **state) {
    (void)state;
    vectors = vectors_load("torch-models.json");
    return vectors ? 0 : -1;
}

static int drop_vectors(void **state) {
    (void)state;
    json_decref(vectors);
    return 0;
}

/* What the script calls value(). */
static tt_tensor *model_input(tt_shape shape) {
    tt_tensor *x = tt_empty(shape, TT_F64);
    double *data = tt_tensor_data(x);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        data[i] = (double)((i * 37 + 19) % 211 - 105) / 105;
    return x;
}

static tt_shape vector_shape(const json_t *sizes) {
    tt_shape shape = {.ndim = (int)json_array_size(sizes)};
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = json_integer_value(json_array_get(sizes, (size_t)d));
    return shape;
}

static uint32_t model_bits(const tt_tensor *x) {
    return (uint32_t)crc32(0, tt_tensor_data(x),
                           (uInt)((size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x))));
}

static double norm_of(tt_tensor *x) {
    double value = NAN;
    assert_int_equal(tt_item(tt_norm(tt_to(x, TT_F64), 2), &value), TT_OK);
    return value;
}

static void assert_close(double got, double expected, double share, const char *what) {
    if (!(fabs(got - expected) <= share * fmax(fabs(expected), 1e-3)))
        fail_msg("%s: expected %.17g, got %.17g", what, expected, got);
}

/* ---- beside PyTorch ---- */

/* The state has the names, the shapes and the bits, in this order. */
static void state_is_pytorchs(tt_module *model, const json_t *state) {
    const tt_named_tensors *own = tt_module_state_dict(model);
    assert_int_equal(own->count, json_array_size(state));
    for (int64_t i = 0; i < own->count; i++) {
        const json_t *entry = json_array_get(state, (size_t)i);
        tt_shape shape = vector_shape(json_array_get(entry, 1)), got = tt_tensor_shape(own->tensors[i]);
        assert_string_equal(own->names[i], json_string_value(json_array_get(entry, 0)));
        assert_int_equal(got.ndim, shape.ndim);
        assert_memory_equal(got.dim, shape.dim, (size_t)got.ndim * sizeof *got.dim);
        if (model_bits(own->tensors[i]) != (uint32_t)json_integer_value(json_array_get(entry, 2)))
            fail_msg("%s: other bits than PyTorch's", own->names[i]);
    }
}

/* Output, gradients and running statistics of a step in f64. */
static void step_is_pytorchs(tt_module *model, const json_t *v, tt_memory_format format) {
    TT_AUTO_SCOPE;
    tt_tensor *x = model_input(vector_shape(json_object_get(v, "input"))), *leaf;
    assert_int_equal(tt_module_to(model, TT_F64), TT_OK);
    leaf = tt_requires_grad_(tt_tensor_dim(x) == 4 ? tt_to_memory_format(x, format) : x, true);
    tt_tensor *y = tt_module_forward(model, leaf);
    assert_int_equal(tt_backward(tt_sum(tt_mul(y, model_input(tt_tensor_shape(y))))), TT_OK);
    const double *out = tt_tensor_data(y);
    for (int64_t i = 0; i < tt_tensor_numel(y); i++)
        assert_close(out[i], vectors_number(json_object_get(v, "output"), (size_t)i), 1e-9, "output");
    assert_close(norm_of(tt_grad(leaf)), vectors_member(v, "input_grad_norm"), 1e-8, "the input's gradient");
    const tt_named_tensors *p = tt_module_parameters(model), *b = tt_module_buffers(model);
    for (int64_t i = 0; i < p->count; i++)
        assert_close(norm_of(tt_grad(p->tensors[i])), vectors_number(json_object_get(v, "grad_norms"), (size_t)i), 1e-8,
                     p->names[i]);
    for (int64_t i = 0; i < b->count; i++)
        assert_close(norm_of(b->tensors[i]), vectors_member(json_object_get(v, "buffer_norms"), b->names[i]), 1e-9,
                     b->names[i]);
}

static void model_is_pytorchs(tt_module *model, const char *name, tt_memory_format format) {
    /* A step of what has more of the same layers is for the long form. A sanitizer, to which these steps are minutes of
     * arithmetic, sees nothing in a larger one that resnet18 lacks. */
    bool steps = strncmp(name, "resnet", 6) != 0 || !strcmp(name, "resnet18") || getenv("TT_LONG") ||
                 (!getenv("TT_SANITIZED") && strcmp(name, "resnet34") != 0 && strcmp(name, "resnet18_zero_init") != 0);
    const json_t *v = json_object_get(vectors, name);
    assert_non_null(model);
    state_is_pytorchs(model, json_object_get(v, "state"));
    if (steps)
        step_is_pytorchs(model, v, format);
    tt_module_free(model);
}

static void models_for_digits(void **state) {
    (void)state;
    tt_manual_seed(0);
    model_is_pytorchs(tt_model_mlp(TT_SIZES(784, 512, 10)), "mlp", TT_CONTIGUOUS);
    tt_manual_seed(0);
    model_is_pytorchs(tt_model_mnist_convnet(0, 0), "mnist_convnet", TT_CONTIGUOUS);
}

static void residual_networks_of_basic_blocks(void **state) {
    (void)state;
    tt_manual_seed(0);
    model_is_pytorchs(tt_model_resnet18(10), "resnet18", TT_CONTIGUOUS);
    tt_manual_seed(0);
    model_is_pytorchs(tt_model_resnet34(10), "resnet34", TT_CHANNELS_LAST);
}

static void residual_networks_of_bottlenecks(void **state) {
    (void)state;
    tt_manual_seed(0);
    model_is_pytorchs(tt_model_resnet50(10), "resnet50", TT_CONTIGUOUS);
}

static void residual_networks_with_options(void **state) {
    (void)state;
    tt_generator *g = tt_generator_new(0);
    model_is_pytorchs(tt_model_resnet18(10, .small_input = true, .generator = g), "resnet18_small_input",
                      TT_CHANNELS_LAST);
    tt_generator_seed(g, 0);
    model_is_pytorchs(tt_model_resnet18(10, .zero_init_residual = true, .generator = g), "resnet18_zero_init",
                      TT_CONTIGUOUS);
    tt_generator_free(g);
}

/* ---- layouts, modes, types ---- */

static tt_status note_layout(tt_module *self, tt_tensor *const *in, int64_t n, tt_tensor **out, int64_t m, void *user) {
    bool *all = user;
    (void)self, (void)in, (void)n, (void)m;
    *all = *all && tt_tensor_stride(out[0], 1) == 1;
    return TT_OK;
}

/* What comes channels last passes so through all layers. */
static void images_stay_channels_last(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const char *const names[] = {"conv1", "layer1", "layer2", "layer3", "layer4"};
    bool all = true;
    tt_module *model = tt_model_resnet18(10, .small_input = true);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tt_module_register_forward_hook(NULL, tt_module_child(model, names[i]), note_layout, &all),
                         TT_OK);
    tt_tensor *x = tt_to_memory_format(tt_randn(TT_SHAPE(2, 3, 16, 16), NULL), TT_CHANNELS_LAST);
    assert_non_null(tt_module_forward(model, x));
    assert_true(all);
    tt_module_free(model);
}

static bool same_twice(tt_module *model, tt_tensor *x) {
    return tt_equal(tt_module_forward(model, x), tt_module_forward(model, x));
}

static void dropout_is_for_training(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *model = tt_model_mnist_convnet(0.25, 0.5);
    tt_tensor *x = tt_randn(TT_SHAPE(2, 1, 28, 28), NULL);
    assert_false(same_twice(model, x));
    tt_module_eval(model);
    assert_true(same_twice(model, x));
    tt_module_free(model);
}

static void models_are_made_in_f64(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *nets[] = {tt_model_mlp(TT_SIZES(6, 4), .dtype = TT_F64), tt_model_mnist_convnet(0, 0, .dtype = TT_F64),
                         tt_model_resnet18(2, .dtype = TT_F64)};
    for (int i = 0; i < 3; i++) {
        const tt_named_tensors *p = tt_module_parameters(nets[i]);
        assert_int_equal(tt_tensor_dtype(p->tensors[0]), TT_F64);
        assert_int_equal(tt_tensor_dtype(p->tensors[p->count - 1]), TT_F64);
        tt_module_free(nets[i]);
    }
}

static void wrong_options(void **state) {
    (void)state;
    assert_null(tt_model_mlp(TT_SIZES(784)));
    expect_error(TT_ERR_INVALID, "tt_model_mlp: expected at least 2 sizes");
    assert_null(tt_model_mlp(TT_SIZES(784, 0, 10)));
    assert_ptr_equal(strstr(tt_last_error(), "tt_model_mlp: "), tt_last_error());
    expect_error(TT_ERR_INVALID, "sizes of at least 1");
    assert_null(tt_model_mlp(TT_SIZES(784, 10), .dtype = TT_F16));
    expect_error(TT_ERR_DTYPE, "tt_model_mlp: expected dtype f32 or f64, got f16");
    assert_null(tt_model_mnist_convnet(0, 0, .dtype = TT_F16));
    expect_error(TT_ERR_DTYPE, "tt_model_mnist_convnet: expected dtype f32 or f64, got f16");
    assert_null(tt_model_mnist_convnet(0.25, 1.5));
    expect_error(TT_ERR_INVALID, "expected dropout2 in 0..1, got 1.5");
    assert_null(tt_model_mnist_convnet(NAN, 0));
    expect_error(TT_ERR_INVALID, "expected dropout1 in 0..1");
    assert_null(tt_model_resnet34(0));
    expect_error(TT_ERR_INVALID, "tt_model_resnet34: expected num_classes of at least 1, got 0");
    assert_null(tt_model_resnet50(INT64_MAX));
    tt_clear_error();
    assert_null(tt_model_resnet18(10, .dtype = TT_BF16));
    expect_error(TT_ERR_DTYPE, "tt_model_resnet18: expected dtype f32 or f64");
    tt_module *model = tt_model_resnet18(10);
    TT_AUTO_SCOPE;
    assert_null(tt_module_forward(model, tt_ones(TT_SHAPE(2, 1, 32, 32), TT_F32)));
    expect_error(TT_ERR_SHAPE, "tt_conv2d");
    tt_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_for_digits),
        cmocka_unit_test(residual_networks_of_basic_blocks),
        cmocka_unit_test(residual_networks_of_bottlenecks),
        cmocka_unit_test(residual_networks_with_options),
        cmocka_unit_test(images_stay_channels_last),
        cmocka_unit_test(dropout_is_for_training),
        cmocka_unit_test(models_are_made_in_f64),
        cmocka_unit_test(wrong_options),
    };
    return cmocka_run_group_tests(tests, load_vectors, drop_vectors);
}
