/* GPT-2 from a folder as Hugging Face's libraries save it: config.json, and model.safetensors or
 * model.safetensors.index.json. */
#include "base/args.h"
#include "base/error.h"
#include "base/text/json.h"
#include "data/files/whole_file.h"
#include "models/causal_lm.h"

#include <tutti/checkpoint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- config.json, as Hugging Face's libraries write it beside the weights:
 *
 *   {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
 *    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "attn_pdrop": 0.1, ...} */

enum { MOST_BYTES = 1 << 20 };

/* ---- entries; errors are added to the list `all` ---- */

static void config_size(const json_t *config, const char *key, bool required, int64_t *size, tt__problem_list *all) {
    const json_t *entry = json_object_get(config, key);
    if ((!entry || json_is_null(entry)) && !required)
        return;
    if (!json_is_integer(entry) || json_integer_value(entry) < 1)
        tt__problem_add(all, TT_ERR_FORMAT, "expected \"%s\", a whole number above 0%s", key,
                        entry ? "" : "; it lacks");
    else
        *size = json_integer_value(entry);
}

static void config_number(const json_t *config, const char *key, double *number, tt__problem_list *all) {
    const json_t *entry = json_object_get(config, key);
    if (!entry || json_is_null(entry))
        return;
    if (!json_is_number(entry) || json_number_value(entry) < 0)
        tt__problem_add(all, TT_ERR_FORMAT, "expected \"%s\" to be a number of at least 0", key);
    else
        *number = json_number_value(entry);
}

static bool config_bool(const json_t *config, const char *key, bool otherwise, tt__problem_list *all) {
    const json_t *entry = json_object_get(config, key);
    if (!entry || json_is_null(entry))
        return otherwise;
    if (!json_is_boolean(entry))
        tt__problem_add(all, TT_ERR_FORMAT, "expected \"%s\" to be true or false", key);
    return json_is_true(entry);
}

/* Read an entry that is one of a few words; the first is the default. Returns its number; -1: another word. */
static int config_word(const json_t *config, const char *key, const char *const *words, tt__problem_list *all) {
    const json_t *entry = json_object_get(config, key);
    const char *word = entry && !json_is_null(entry) ? json_string_value(entry) : words[0];
    for (int i = 0; word && words[i]; i++)
        if (!strcmp(word, words[i]))
            return i;
    tt__problem_add(all, TT_ERR_UNSUPPORTED, "expected \"%s\" to be \"%s\"%s", key, words[0],
                    words[1] ? " or another one that GPT-2 is known with" : "");
    return -1;
}

static void config_must_be(const json_t *config, const char *key, bool value, tt__problem_list *all) {
    if (config_bool(config, key, value, all) != value)
        tt__problem_add(all, TT_ERR_UNSUPPORTED, "expected \"%s\" to be %s", key, value ? "true" : "false");
}

static void config_take(const json_t *config, tt_model_gpt2_args *a, tt__problem_list *all) {
    static const char *const kinds[] = {"gpt2", NULL};
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
    double epsilon = 1e-5, embd = 0.1, attn = 0.1, resid = 0.1; /* defaults of the files' writers */
    bool old = !json_object_get(config, "n_positions") && json_object_get(config, "n_ctx");
    config_word(config, "model_type", kinds, all);
    config_size(config, "vocab_size", true, &a->vocab_size, all);
    config_size(config, old ? "n_ctx" : "n_positions", true, &a->n_positions, all);
    config_size(config, "n_embd", true, &a->n_embd, all);
    config_size(config, "n_layer", true, &a->n_layer, all);
    config_size(config, "n_head", true, &a->n_head, all);
    config_size(config, "n_inner", false, &a->n_inner, all);
    config_number(config, "layer_norm_epsilon", &epsilon, all);
    config_number(config, "embd_pdrop", &embd, all);
    config_number(config, "attn_pdrop", &attn, all);
    config_number(config, "resid_pdrop", &resid, all);
    config_must_be(config, "scale_attn_weights", true, all);
    config_must_be(config, "scale_attn_by_inverse_layer_idx", false, all);
    config_must_be(config, "add_cross_attention", false, all);
    a->exact_gelu = config_word(config, "activation_function", activations, all) == 2;
    a->no_weight_tying = !config_bool(config, "tie_word_embeddings", true, all);
    a->layer_norm_epsilon = epsilon;
    a->embd_pdrop = embd;
    a->attn_pdrop = attn;
    a->resid_pdrop = resid;
}

/* ---- files ---- */

/* Read and free a loaded config; NULL: `error` says why it could not be loaded. */
static tt_status config_use(json_t *config, const json_error_t *error, const char *name, tt_model_gpt2_args *a) {
    tt__problem_list all = {0};
    if (!config)
        return tt__fail(json_error_code(error) == json_error_out_of_memory ? TT_ERR_MEMORY : TT_ERR_FORMAT,
                        "%s: no valid JSON, line %d, column %d", name, error->line, error->column);
    if (json_is_object(config))
        config_take(config, a, &all);
    else
        tt__problem_add(&all, TT_ERR_FORMAT, "expected an object");
    json_decref(config);
    return tt__problems_report(&all, name);
}

tt_status tt__gpt2_config_parse(const void *data, size_t size, const char *name, tt_model_gpt2_args *a) {
    json_error_t error;
    return config_use(tt__json_loadb(data, size, JSON_REJECT_DUPLICATES, &error), &error, name, a);
}

static tt_status gpt2_config_read(const char *path, tt_model_gpt2_args *a) {
    tt__whole_file text;
    TT__TRY(tt__whole_file_read(&text, path, MOST_BYTES));
    tt_status status = tt__gpt2_config_parse(text.data, text.size, path, a);
    tt__whole_file_free(&text);
    return status;
}

/* ---- the folder ---- */

static const char pretrained_name[] = "tt_model_gpt2_from_pretrained";

/* Join the first `length` bytes of a folder's path, and a name. The caller frees the result. */
static char *model_path_in(const char *folder, size_t length, const char *name) {
    char *path = NULL;
    if (asprintf(&path, "%.*s%s%s", (int)length, folder, length && folder[length - 1] != '/' ? "/" : "", name) < 0)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a path", pretrained_name);
    return path;
}

/* Set the paths of the weights and of the config.json beside them. The caller frees both, also after a failure. */
static tt_status find_model_files(const char *path, char **weights, char **config) {
    struct stat s;
    const char *slash = strrchr(path, '/');
    size_t length = strlen(path);
    if (stat(path, &s))
        return tt__fail_errno(TT_ERR_IO, errno, "%s: expected a folder or a safetensors file, got \"%s\"",
                              pretrained_name, path);
    if (!S_ISDIR(s.st_mode)) {
        *weights = strdup(path);
        *config = model_path_in(path, slash ? (size_t)(slash + 1 - path) : 0, "config.json");
        return *weights && *config ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", pretrained_name);
    }
    *config = model_path_in(path, length, "config.json");
    *weights = model_path_in(path, length, "model.safetensors");
    if (!*config || !*weights || access(*weights, F_OK) == 0)
        return *config && *weights ? TT_OK : TT_ERR_MEMORY;
    free(*weights);
    *weights = model_path_in(path, length, "model.safetensors.index.json");
    return *weights ? TT_OK : TT_ERR_MEMORY;
}

static tt_status load_weights(tt_module *model, const char *path) {
    tt_safetensors *file = NULL;
    TT__TRY(tt_safetensors_load(&file, path, .skip_unsupported = true));
    tt_status status = tt_model_gpt2_load_state_dict(model, tt_safetensors_tensors(file));
    tt_safetensors_free(file);
    return status ? tt__fail_prefix("%s", path) : TT_OK;
}

tt_module *tt_model_gpt2_from_pretrained_with(const tt_model_gpt2_from_pretrained_args *args, size_t size) {
    tt_model_gpt2_from_pretrained_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.path)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected the path of a folder or of a safetensors file, got NULL",
                             pretrained_name);
    char *weights = NULL, *config = NULL;
    tt_model_gpt2_args model_args = {.dtype = a.dtype};
    tt_module *model = NULL;
    if (tt__layer_dtype_check(pretrained_name, a.dtype))
        return NULL;
    tt_status status = find_model_files(a.path, &weights, &config);
    if (!status)
        status = gpt2_config_read(config, &model_args);
    if (!status)
        status = (model = tt__gpt2_new(config, &model_args)) ? load_weights(model, weights) : tt_last_status();
    model = tt__model_made(pretrained_name, model, status);
    tt_module_eval(model);
    free(weights);
    free(config);
    return model;
}
