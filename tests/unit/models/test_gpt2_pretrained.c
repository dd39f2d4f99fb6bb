/* GPT-2 from files: folders, single files, indices; wrong config.json; weights that don't fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tutti/checkpoint.h>

#include "gpt_cases.h"
#include "unit/expect.h"

#define CONFIG                                                                                              \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 65, \"n_positions\": 16, \"n_ctx\": 16, \"n_embd\": 32, "   \
    "\"n_layer\": 2, \"n_head\": 4, \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05, " \
    "\"attn_pdrop\": 0.1, \"n_inner\": null, \"task_specific_params\": {\"top_k\": 50}"

static char folder[] = "/tmp/tutti-gpt2-XXXXXX";

static const char *inside(const char *name) {
    static char path[2][256];
    static int i;
    i = !i;
    snprintf(path[i], sizeof path[i], "%s/%s", folder, name);
    return path[i];
}

static void write_text(const char *name, const char *text) {
    FILE *file = fopen(inside(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The weights as they are published: without "transformer.", without a head, with a mask. */
static void write_weights(const char *name, int64_t leave_out) {
    TT_AUTO_SCOPE;
    const char *names[64];
    tt_tensor *tensors[64];
    tt_module *model = gpt2_case(TT_F32);
    const tt_named_tensors *own = tt_module_parameters(model);
    int64_t n = 0;
    for (int64_t i = 0; i < own->count; i++) {
        if (i == leave_out)
            continue;
        names[n] = own->names[i] + strlen("transformer.");
        tensors[n++] = own->tensors[i];
    }
    names[n] = "h.0.attn.bias";
    tensors[n++] = tt_ones(TT_SHAPE(1, 1, GPT_P, GPT_P), TT_U8);
    const tt_named_tensors *list = TT_NAMED_TENSORS(n, names, tensors);
    if (strstr(name, "index"))
        assert_int_equal(tt_safetensors_save_sharded(inside(name), list, .max_shard_bytes = 20000), TT_OK);
    else
        assert_int_equal(tt_safetensors_save(inside(name), list, NULL, 0), TT_OK);
    tt_module_free(model);
}

static int begin_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    write_text("config.json", CONFIG "}");
    write_weights("model.safetensors", -1);
    return 0;
}

static int end_folder(void **state) {
    char command[300];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void is_the_model(tt_module *model) {
    TT_AUTO_SCOPE;
    tt_module *same = gpt2_case(TT_F32);
    assert_non_null(model);
    assert_false(tt_module_training(model));
    assert_true(tt_equal(tt_module_forward(model, gpt_tokens(2, 9)), tt_module_forward(same, gpt_tokens(2, 9))));
    tt_module_free(same);
    tt_module_free(model);
}

static void folders_and_files(void **state) {
    (void)state;
    is_the_model(tt_model_gpt2_from_pretrained(folder));
    is_the_model(tt_model_gpt2_from_pretrained(inside("")));
    is_the_model(tt_model_gpt2_from_pretrained(inside("model.safetensors")));
    assert_int_equal(unlink(inside("model.safetensors")), 0);
    write_weights("model.safetensors.index.json", -1);
    is_the_model(tt_model_gpt2_from_pretrained(folder));
    is_the_model(tt_model_gpt2_from_pretrained(inside("model.safetensors.index.json")));
    write_weights("model.safetensors", -1);
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(folder), 0);
    is_the_model(tt_model_gpt2_from_pretrained("model.safetensors"));
    assert_int_equal(chdir(before), 0);
    free(before);
}

static void options_of_the_config(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *wide = tt_model_gpt2_from_pretrained(folder, .dtype = TT_F64), *exact;
    assert_int_equal(tt_tensor_dtype(tt_module_parameters(wide)->tensors[0]), TT_F64);
    write_text("config.json", CONFIG ", \"activation_function\": \"gelu\"}");
    assert_null(tt_model_gpt2_from_pretrained(folder));
    expect_error(TT_ERR_FORMAT, "no valid JSON"); /* the key comes twice */
    write_text("config.json", "{\"vocab_size\": 65, \"n_ctx\": 16, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 4, "
                              "\"activation_function\": \"gelu\"}");
    exact = tt_model_gpt2_from_pretrained(folder, .dtype = TT_F64);
    assert_non_null(exact);
    assert_false(tt_equal(tt_module_forward(wide, gpt_tokens(1, 9)), tt_module_forward(exact, gpt_tokens(1, 9))));
    tt_module_free(wide);
    tt_module_free(exact);
    write_text("config.json", CONFIG "}");
}

static void wrong_configs(void **state) {
    (void)state;
    static const struct {
        const char *text;
        tt_status status;
        const char *says;
    } cases[] = {
        {"", TT_ERR_FORMAT, "no valid JSON"},
        {"[1]", TT_ERR_FORMAT, "expected an object"},
        {"{}", TT_ERR_FORMAT, "expected \"vocab_size\", a whole number above 0; it lacks"},
        {CONFIG ", \"tie_word_embeddings\": 1}", TT_ERR_FORMAT, "\"tie_word_embeddings\" to be true or false"},
        {CONFIG ", \"resid_pdrop\": -0.5}", TT_ERR_FORMAT, "\"resid_pdrop\" to be a number of at least 0"},
        {CONFIG ", \"resid_pdrop\": 1.5}", TT_ERR_INVALID, "dropout of residuals in 0..1, got 1.5"},
        {CONFIG ", \"add_cross_attention\": true}", TT_ERR_UNSUPPORTED, "\"add_cross_attention\" to be false"},
        {CONFIG ", \"scale_attn_weights\": false}", TT_ERR_UNSUPPORTED, "\"scale_attn_weights\" to be true"},
        {"{\"model_type\": \"bert\", \"vocab_size\": 65, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 2, "
         "\"n_head\": 4}",
         TT_ERR_UNSUPPORTED, "expected \"model_type\" to be \"gpt2\""},
        {"{\"vocab_size\": 65.5, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": -2, \"n_head\": 4}", TT_ERR_FORMAT,
         "\"vocab_size\""},
        {"{\"vocab_size\": 65, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 9000000000000000000, \"n_head\": 4}",
         TT_ERR_INVALID, "parameters"},
        {"{\"vocab_size\": 65, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 5}", TT_ERR_INVALID,
         "expected n_head to divide n_embd 32, got 5"},
        {"{\"vocab_size\": 65, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 4, "
         "\"activation_function\": \"relu\"}",
         TT_ERR_UNSUPPORTED, "expected \"activation_function\" to be \"gelu_new\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("config.json", cases[i].text);
        assert_null(tt_model_gpt2_from_pretrained(folder));
        assert_non_null(strstr(tt_last_error(), inside("config.json")));
        assert_ptr_equal(strstr(tt_last_error(), "tt_model_gpt2_from_pretrained: "), tt_last_error());
        expect_error(cases[i].status, cases[i].says);
    }
    write_text("config.json", CONFIG "}");
}

static void files_that_are_not_there(void **state) {
    (void)state;
    assert_null(tt_model_gpt2_from_pretrained(NULL));
    expect_error(TT_ERR_INVALID, "expected the path of a folder or of a safetensors file, got NULL");
    assert_null(tt_model_gpt2_from_pretrained("no-such-model"));
    expect_error(TT_ERR_IO, "tt_model_gpt2_from_pretrained: expected a folder or a safetensors file, got "
                            "\"no-such-model\": No such file");
    assert_null(tt_model_gpt2_from_pretrained(inside("nothing/model.safetensors")));
    expect_error(TT_ERR_IO, "nothing/model.safetensors\": No such file");
    assert_null(tt_model_gpt2_from_pretrained(folder, .dtype = TT_F16));
    expect_error(TT_ERR_DTYPE, "tt_model_gpt2_from_pretrained: expected dtype f32 or f64, got f16");
    assert_null(tt_model_gpt2_from_pretrained(inside("other.safetensors")));
    expect_error(TT_ERR_IO, "other.safetensors");
    assert_int_equal(mkdir(inside("empty"), 0700), 0);
    write_text("empty/config.json", CONFIG "}");
    assert_null(tt_model_gpt2_from_pretrained(inside("empty")));
    expect_error(TT_ERR_IO, "empty/model.safetensors");
    write_text("empty/model.safetensors", "no tensors");
    assert_null(tt_model_gpt2_from_pretrained(inside("empty")));
    expect_error(TT_ERR_FORMAT, "empty/model.safetensors");
    write_text("empty/config.json", "");
    assert_int_equal(unlink(inside("empty/config.json")), 0);
    assert_null(tt_model_gpt2_from_pretrained(inside("empty")));
    expect_error(TT_ERR_IO, "empty/config.json: can't open it");
    assert_int_equal(mkdir(inside("empty/config.json"), 0700), 0);
    assert_null(tt_model_gpt2_from_pretrained(inside("empty")));
    expect_error(TT_ERR_IO, "expected a regular file, got a directory");
}

static void weights_that_do_not_fit(void **state) {
    (void)state;
    write_weights("missing.safetensors", 4);
    assert_null(tt_model_gpt2_from_pretrained(inside("missing.safetensors")));
    assert_non_null(strstr(tt_last_error(), "missing.safetensors"));
    assert_ptr_equal(strstr(tt_last_error(), "tt_model_gpt2_from_pretrained: "), tt_last_error());
    expect_error(TT_ERR_NOT_FOUND, "transformer.h.0.attn.c_attn.weight");
    write_text("config.json", "{\"vocab_size\": 66, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": "
                              "4}");
    assert_null(tt_model_gpt2_from_pretrained(folder));
    expect_error(TT_ERR_SHAPE, "wte.weight");
    write_text("config.json", "{\"vocab_size\": 65, \"n_positions\": 16, \"n_embd\": 32, \"n_layer\": 3, \"n_head\": "
                              "4}");
    assert_null(tt_model_gpt2_from_pretrained(folder));
    expect_error(TT_ERR_NOT_FOUND, "transformer.h.2.ln_1.weight");
    write_text("config.json", CONFIG ", \"tie_word_embeddings\": false}");
    assert_null(tt_model_gpt2_from_pretrained(folder));
    expect_error(TT_ERR_NOT_FOUND, "lm_head.weight");
    write_text("config.json", CONFIG "}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_and_files),       cmocka_unit_test(options_of_the_config),
        cmocka_unit_test(wrong_configs),           cmocka_unit_test(files_that_are_not_there),
        cmocka_unit_test(weights_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, begin_folder, end_folder);
}
