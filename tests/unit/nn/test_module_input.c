/* Modules with inputs that don't fit: wrong shapes, types, devices. One error each, which says who refused what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/tutti.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tt_module *linear(void) { return tt_nn_linear(4, 3); }
static tt_module *conv1d(void) { return tt_nn_conv1d(4, 3, 2); }
static tt_module *conv2d(void) { return tt_nn_conv2d(4, 3, 2); }
static tt_module *transposed(void) { return tt_nn_conv_transpose2d(4, 3, 2); }
static tt_module *batch_norm1d(void) { return tt_nn_batch_norm1d(4); }
static tt_module *batch_norm2d(void) { return tt_nn_batch_norm2d(4); }
static tt_module *layer_norm(void) { return tt_nn_layer_norm(TT_SHAPE(4)); }
static tt_module *rms_norm(void) { return tt_nn_rms_norm(TT_SHAPE(4)); }
static tt_module *group_norm(void) { return tt_nn_group_norm(2, 4); }
static tt_module *rnn(void) { return tt_nn_rnn(4, 3); }
static tt_module *lstm(void) { return tt_nn_lstm(4, 3); }
static tt_module *gru(void) { return tt_nn_gru(4, 3); }
static tt_module *attention(void) { return tt_nn_multihead_attention(4, 2); }
static tt_module *encoder_layer(void) { return tt_nn_transformer_encoder_layer(4, 2, 8, 0.0); }
static tt_module *encoder(void) { return tt_nn_transformer_encoder(encoder_layer(), 2, .norm = true); }

/* Modules with parameters, whom their errors name, an input that fits, and one of another shape. */
static const struct {
    tt_module *(*make)(void);
    const char *named;
    tt_shape right, wrong;
} modules[] = {
    {linear, "tt_linear", {1, {4}}, {2, {2, 5}}},
    {conv1d, "tt_conv", {3, {2, 4, 5}}, {3, {2, 5, 5}}},
    {conv2d, "tt_conv2d", {4, {2, 4, 5, 5}}, {4, {2, 5, 5, 5}}},
    {transposed, "tt_conv_transpose2d", {4, {2, 4, 5, 5}}, {4, {2, 3, 5, 5}}},
    {batch_norm1d, "batch_norm", {2, {3, 4}}, {2, {3, 5}}},
    {batch_norm2d, "batch_norm", {4, {2, 4, 5, 5}}, {3, {2, 4, 5}}},
    {layer_norm, "tt_layer_norm", {2, {3, 4}}, {2, {4, 3}}},
    {rms_norm, "tt_rms_norm", {2, {3, 4}}, {2, {4, 3}}},
    {group_norm, "tt_group_norm", {3, {2, 4, 3}}, {3, {2, 6, 3}}},
    {rnn, "RNN", {3, {5, 2, 4}}, {3, {5, 2, 3}}},
    {lstm, "LSTM", {3, {5, 2, 4}}, {4, {5, 2, 4, 4}}},
    {gru, "GRU", {3, {5, 2, 4}}, {1, {4}}},
    {attention, "MultiheadAttention", {3, {5, 2, 4}}, {3, {5, 2, 5}}},
    {encoder_layer, "TransformerEncoderLayer", {3, {5, 2, 4}}, {3, {5, 2, 5}}},
    {encoder, "TransformerEncoder", {3, {5, 2, 4}}, {1, {4}}},
};

static void expect_refused(size_t i, tt_module *m, tt_tensor *x, tt_status status) {
    tt_clear_error();
    assert_non_null(x);
    if (tt_module_forward(m, x))
        fail_msg("module %zu, %s, took what does not fit", i, tt_module_class_name(m));
    if (tt_last_status() != status || !strstr(tt_last_error(), modules[i].named))
        fail_msg("module %zu: expected %s of %s, got %s: %s", i, tt_status_name(status), modules[i].named,
                 tt_status_name(tt_last_status()), tt_last_error());
    assert_int_equal(tt_backward(NULL), status); /* the scope's first error is the same */
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(modules); i++) {
        TT_AUTO_SCOPE;
        tt_module *m = modules[i].make();
        tt_tensor *x = tt_ones(modules[i].right, TT_F32);
        assert_non_null(tt_module_forward(m, x));
        expect_refused(i, m, tt_ones(modules[i].wrong, TT_F32), TT_ERR_SHAPE);
        expect_refused(i, m, tt_to(x, TT_F64), TT_ERR_DTYPE);
        expect_refused(i, m, tt_to(x, TT_I64), TT_ERR_DTYPE);
        expect_refused(i, m, tt_to_device(x, tt_device_get("reference")), TT_ERR_INVALID);
        assert_non_null(tt_module_forward(m, x)); /* and nothing of it stays */
        tt_module_free(m);
    }
}

static void an_embedding_takes_its_indices(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_embedding(5, 3);
    assert_null(tt_module_forward(m, tt_ones(TT_SHAPE(2), TT_F32)));
    assert_int_equal(tt_last_status(), TT_ERR_DTYPE);
    assert_non_null(strstr(tt_last_error(), "tt_embedding"));
    assert_null(tt_module_forward(m, tt_full(TT_SHAPE(2), TT_I64, 5)));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "tt_embedding"));
    tt_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(an_embedding_takes_its_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
