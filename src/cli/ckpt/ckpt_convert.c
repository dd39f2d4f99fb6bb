/* tutti ckpt convert: from any format to the one that the name of the new file says. */
#include "base/error.h"
#include "base/parse.h"
#include "checkpoint/entries.h"
#include "cli/ckpt/ckpt.h"
#include "cli/clean_end.h"

#include <stdio.h>
#include <string.h>

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

/* ---- the weights alone ---- */

/* Where PyTorch's programs keep the model in a training checkpoint. */
static const tt_value *model_of(const tt_value *root) {
    static const char *const keys[] = {"model", "state_dict", "model_state_dict"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const tt_value *found = tt_value_typeof(root) == TT_VALUE_DICT ? tt_value_find(root, keys[i]) : NULL;
        if (found && tt_value_typeof(found) == TT_VALUE_DICT)
            return found;
    }
    return root;
}

/* Do all names begin with what DDP puts before them? */
static bool are_wrapped(const tt__entries *e) {
    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->names[i], "module.", strlen("module.")) != 0)
            return false;
    return e->count > 0;
}

/* List the model's entries; tt__entries_free() must follow, whatever is returned. */
static tt_status find_weights(const tt__ckpt_file *file, tt__entries *weights) {
    const tt_named_tensors *all =
        file->value ? tt_value_tensors(model_of(file->value)) : tt_safetensors_tensors(file->safetensors);
    if (!all)
        return tt_last_status();
    TT__TRY(tt__entries_make(weights, (size_t)all->count));
    for (int64_t i = 0; i < all->count; i++)
        if (tt__part_of(all->names[i]) == TT__PART_MODEL)
            tt__entries_add(weights, all->names[i], all->tensors[i]);
    bool wrapped = are_wrapped(weights);
    for (size_t i = 0; wrapped && i < weights->count; i++)
        weights->names[i] += strlen("module.");
    return weights->count ? TT_OK : tt__fail(TT_ERR_NOT_FOUND, "%s: there are no weights in it", file->path);
}

/* ---- writing ---- */

static tt_status save_as_torch(const tt_named_tensors *tensors, const char *to) {
    tt_value *dict = tt_value_of_tensors(tensors);
    tt_status status = tt_torch_save(to, dict);
    tt_value_free(dict);
    return status;
}

static tt_status save_as_safetensors(const tt_named_tensors *tensors, const char *to, uint64_t max_shard_bytes) {
    if (tt__ends_with(to, ".safetensors.index.json"))
        return tt_safetensors_save_sharded(to, tensors, .max_shard_bytes = max_shard_bytes);
    return tt_safetensors_save(to, tensors, NULL, 0);
}

static tt_status save_weights(const tt__ckpt_file *file, const char *to, bool torch, uint64_t max_shard_bytes) {
    tt__entries weights = {0};
    tt_status status = find_weights(file, &weights);
    if (!status)
        status = torch ? save_as_torch(tt__entries_view(&weights), to)
                       : save_as_safetensors(tt__entries_view(&weights), to, max_shard_bytes);
    tt__entries_free(&weights);
    return status;
}

static tt_status write_whole_file(const tt__ckpt_file *file, const char *to, bool torch, uint64_t max_shard_bytes) {
    if (torch)
        return file->value ? tt_torch_save(to, file->value)
                           : save_as_torch(tt_safetensors_tensors(file->safetensors), to);
    const tt_named_tensors *tensors =
        file->value ? tt_value_tensors(file->value) : tt_safetensors_tensors(file->safetensors);
    if (!tensors)
        return tt_last_status();
    if (file->value)
        note_left_out(file);
    return save_as_safetensors(tensors, to, max_shard_bytes);
}

int tt__ckpt_convert(const char *from, const char *to, bool weights_only, uint64_t max_shard_bytes) {
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
        status = (weights_only ? save_weights : write_whole_file)(&file, to, torch, max_shard_bytes);
    if (status)
        tt_report();
    tt__ckpt_free(&file);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
