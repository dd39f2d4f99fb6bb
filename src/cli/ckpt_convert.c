/* tutti ckpt convert: from any format to the one that the name of the new file says. */
#include "base/parse.h"
#include "cli/ckpt.h"
#include "cli/clean_end.h"

#include <stdio.h>

/* Say what safetensors has no place for. */
static void note_left_out(const tt__ckpt_file *file) {
    size_t others = 0;
    const char *first = NULL;
    for (size_t i = 0; i < file->count; i++) {
        if (file->rows[i].tensor)
            continue;
        first = first ? first : file->rows[i].name;
        others++;
    }
    if (others)
        tt__cli_note("ckpt convert", "left out %zu values that are no tensors, such as \"%s\"", others, first);
}

static tt_status save_torch(const tt__ckpt_file *file, const char *to) {
    if (file->value)
        return tt_torch_save(to, file->value);
    tt_value *dict = tt_value_of_tensors(tt_safetensors_tensors(file->safetensors));
    tt_status status = tt_torch_save(to, dict);
    tt_value_free(dict);
    return status;
}

static tt_status save_tensors(const tt__ckpt_file *file, const char *to, uint64_t max_shard_bytes) {
    const tt_named_tensors *tensors =
        file->value ? tt_value_tensors(file->value) : tt_safetensors_tensors(file->safetensors);
    if (!tensors)
        return tt_last_status();
    if (file->value)
        note_left_out(file);
    if (tt__ends_with(to, ".safetensors.index.json"))
        return tt_safetensors_save_sharded(to, tensors, .max_shard_bytes = max_shard_bytes);
    return tt_safetensors_save(to, tensors, NULL, 0);
}

int tt__ckpt_convert(const char *from, const char *to, uint64_t max_shard_bytes) {
    bool torch = tt__ends_with(to, ".pt") || tt__ends_with(to, ".pth") || tt__ends_with(to, ".bin");
    if (!torch && !tt__ends_with(to, ".safetensors") && !tt__ends_with(to, ".safetensors.index.json"))
        return tt__cli_usage_error("ckpt convert",
                                   "expected a new file that ends in .safetensors, .safetensors.index.json, .pt, .pth "
                                   "or .bin, got %s",
                                   to);
    tt__ckpt_file file;
    tt__cli_end_cleanly();
    tt_status status = tt__ckpt_open(&file, from);
    if (!status)
        status = torch ? save_torch(&file, to) : save_tensors(&file, to, max_shard_bytes);
    if (status)
        tt_report();
    tt__ckpt_free(&file);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
