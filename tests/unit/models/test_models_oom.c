/* Ready models and memory: each allocation of making, training, loading and generating fails once; a steady step of
 * training makes none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tutti/checkpoint.h>

#include "base/error.h"
#include "gpt_cases.h"
#include "unit/alloc_fail.h"

static tt_status train_step(tt_module *model, tt_shape shape) {
    TT_AUTO_SCOPE;
    tt_tensor *x = shape.ndim == 2 ? tt_zeros(shape, TT_I64) : tt_ones(shape, TT_F32);
    return tt_backward(tt_mean(tt_module_forward(model, x)));
}

static tt_status make_and_train(tt_module *model, tt_shape shape) {
    tt_status status = model ? train_step(model, shape) : tt_last_status();
    tt_module_free(model);
    return status;
}

static tt_status images(void *arg) {
    (void)arg;
    tt_status status = make_and_train(tt_model_mlp(TT_SIZES(8, 4, 2)), TT_SHAPE(2, 2, 2, 2));
    return status ? status : make_and_train(tt_model_mnist_convnet(0.25, 0.5), TT_SHAPE(1, 1, 28, 28));
}

static tt_status residual(void *arg) {
    (void)arg;
    tt_module *model = tt_model_resnet18(2, .small_input = true, .zero_init_residual = true);
    tt_status status = model ? TT_OK : tt_last_status();
    tt_module_free(model);
    return status;
}

static tt_status texts(void *arg) {
    (void)arg;
    tt_status status = make_and_train(tt_model_gpt(GPT_V, GPT_P, 8, 1, 2), TT_SHAPE(2, 5));
    if (!status)
        status = make_and_train(tt_model_gpt2(GPT_V, GPT_P, 8, 1, 2, .attn_pdrop = 0.1), TT_SHAPE(2, 5));
    return status;
}

/* Load a state of bf16 and write a text beyond the positions. */
static tt_status load_and_write(tt_module *model, tt_module *from) {
    const int64_t prompt[] = {1, 2, 3};
    int64_t text[24];
    TT__TRY(tt_module_to(from, TT_BF16));
    TT__TRY(tt_model_gpt2_load_state_dict(model, tt_module_state_dict(from)));
    return tt_model_generate(text, NULL, model, prompt, 3, 24, .temperature = 1, .top_k = 5, .sliding_window = true);
}

static tt_status generating(void *arg) {
    (void)arg;
    tt_module *model = tt_model_gpt2(GPT_V, GPT_P, 8, 1, 2);
    tt_module *from = model ? tt_model_gpt2(GPT_V, GPT_P, 8, 1, 2) : NULL;
    tt_status status = from ? load_and_write(model, from) : tt_last_status();
    tt_module_free(model);
    tt_module_free(from);
    return status;
}

static tt_status pretrained(void *folder) {
    tt_module *model = tt_model_gpt2_from_pretrained(folder);
    tt_status status = model ? TT_OK : tt_last_status();
    tt_module_free(model);
    return status;
}

static void runs_out_in(tt_status (*program)(void *), void *arg, int least) {
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_in_range(alloc_fail_each(program, arg, ALLOC_ENDS), least, 5000);
}

static void memory_for_images(void **state) { (void)state, runs_out_in(images, NULL, 50); }
static void memory_for_residual_networks(void **state) { (void)state, runs_out_in(residual, NULL, 200); }
static void memory_for_texts(void **state) { (void)state, runs_out_in(texts, NULL, 100); }
static void memory_for_generating(void **state) { (void)state, runs_out_in(generating, NULL, 100); }

static void memory_for_files(void **state) {
    char folder[] = "/tmp/tutti-gpt2-oom-XXXXXX", path[64], config[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fputs("{\"vocab_size\": 65, \"n_positions\": 16, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2}", file);
    assert_int_equal(fclose(file), 0);
    tt_module *model = tt_model_gpt2(GPT_V, GPT_P, 8, 1, 2);
    assert_int_equal(tt_safetensors_save(path, tt_module_parameters(model), NULL, 0), TT_OK);
    tt_module_free(model);
    runs_out_in(pretrained, folder, 100);
    assert_int_equal(unlink(path) | unlink(config) | rmdir(folder), 0);
}

/* ---- steady steps ---- */

static void steps_allocate_nothing(tt_module *model, tt_shape shape) {
    assert_non_null(model);
    for (int i = 0; i < 3; i++)
        assert_int_equal(train_step(model, shape), TT_OK);
    long before = alloc_count_own;
    for (int i = 0; i < 4; i++)
        assert_int_equal(train_step(model, shape), TT_OK);
    assert_int_equal(alloc_count_own - before, 0);
    tt_module_free(model);
}

static void a_steady_step_of_models_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    steps_allocate_nothing(tt_model_mlp(TT_SIZES(8, 4, 2)), TT_SHAPE(2, 2, 2, 2));
    steps_allocate_nothing(tt_model_mnist_convnet(0.25, 0.5), TT_SHAPE(1, 1, 28, 28));
    steps_allocate_nothing(tt_model_resnet18(2, .small_input = true), TT_SHAPE(2, 3, 16, 16));
    steps_allocate_nothing(tt_model_gpt(GPT_V, GPT_P, 8, 2, 2), TT_SHAPE(2, 5));
    steps_allocate_nothing(tt_model_gpt2(GPT_V, GPT_P, 8, 2, 2, .attn_pdrop = 0.1), TT_SHAPE(2, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_for_images), cmocka_unit_test(memory_for_residual_networks),
        cmocka_unit_test(memory_for_texts),  cmocka_unit_test(memory_for_generating),
        cmocka_unit_test(memory_for_files),  cmocka_unit_test(a_steady_step_of_models_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
