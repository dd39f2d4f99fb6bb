/* A folder as Hugging Face's libraries save it: config.json, and model.safetensors or model.safetensors.index.json. */
#include "base/args.h"
#include "base/text/parse.h"
#include "models/gpt2.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

static const char who[] = "tt_model_gpt2_from_pretrained";

/* Join a folder, of which `length` bytes count, and a name; the caller's to free. */
static char *model_path_in(const char *folder, size_t length, const char *name) {
    char *path = NULL;
    if (asprintf(&path, "%.*s%s%s", (int)length, folder, length && folder[length - 1] != '/' ? "/" : "", name) < 0)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a path", who);
    return path;
}

/* Set the paths of the weights and of the config.json beside them; the caller's to free, also after a failure. */
static tt_status find_model_files(const char *path, char **weights, char **config) {
    struct stat s;
    const char *slash = strrchr(path, '/');
    size_t length = strlen(path);
    if (stat(path, &s))
        return tt__fail_errno(TT_ERR_IO, errno, "%s: expected a folder or a safetensors file, got \"%s\"", who, path);
    if (!S_ISDIR(s.st_mode)) {
        *weights = strdup(path);
        *config = model_path_in(path, slash ? (size_t)(slash + 1 - path) : 0, "config.json");
        return *weights && *config ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", who);
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
                             who);
    char *weights = NULL, *config = NULL;
    tt_model_gpt2_args model_args = {.dtype = a.dtype};
    tt_module *model = NULL;
    if (tt__layer_dtype_check(who, a.dtype))
        return NULL;
    tt_status status = find_model_files(a.path, &weights, &config);
    if (!status)
        status = tt__gpt2_config_read(config, &model_args);
    if (!status)
        status = (model = tt__gpt2_new(config, &model_args)) ? load_weights(model, weights) : tt_last_status();
    model = tt__model_made(who, model, status);
    tt_module_eval(model);
    free(weights);
    free(config);
    return model;
}
