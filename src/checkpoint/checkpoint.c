/* The state of a training run in one safetensors file: the model's entries under their own names, the optimizer's under
 * "optimizer.", and the progress of training in the metadata. */
#include <string.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "checkpoint/entries.h"
#include "checkpoint/progress_texts.h"

tt_status tt_checkpoint_can_save(const char *path) { return tt__atomic_check(path); }

tt_status tt_checkpoint_save(const char *path, tt_module *model, tt_optimizer *optimizer, const tt_progress *progress) {
    if (!path || !model)
        return tt__fail(TT_ERR_INVALID, "tt_checkpoint_save: `%s` is NULL", path ? "model" : "path");
    TT__TRY(tt__progress_check("tt_checkpoint_save", progress));
    tt__progress_texts texts;
    tt__entries all = {0};
    tt__progress_write(&texts, progress);
    tt_status status = tt__entries_collect(&all, model, optimizer);
    if (status)
        tt__fail_prefix("%s", path);
    else
        status = tt_safetensors_save(path, tt__entries_view(&all), texts.pairs, texts.count);
    tt__entries_free(&all);
    return status;
}

/* ---- loading ---- */

/* Copy the backup to where it came from, which can't fail. */
static void backup_restore(const tt__entries *copies, const tt_named_tensors *to) {
    for (size_t i = 0; i < copies->count; i++)
        (void)!tt_copy(to->tensors[i], copies->tensors[i]);
}

static tt_status load_both(tt_module *model, tt__entries *of_model, tt_optimizer *optimizer,
                           tt__entries *of_optimizer) {
    const tt_named_tensors *current = tt_module_state_dict(model);
    tt__entries before = {0};
    tt_status status = current ? tt__entries_copy(&before, current) : tt_last_status();
    if (!status)
        status = tt_module_load_state_dict(model, tt__entries_view(of_model));
    if (!status) {
        status = tt_optimizer_load_state_dict(optimizer, tt__entries_view(of_optimizer));
        if (status)
            backup_restore(&before, current);
    }
    tt__entries_free_copies(&before);
    return status;
}

static tt_status load_into(const tt_safetensors *file, tt_module *model, tt_optimizer *optimizer,
                           tt_progress *progress) {
    tt_progress stand;
    TT__TRY(tt__progress_read(file, &stand));
    const tt_named_tensors *all = tt_safetensors_tensors(file);
    tt__entries of_model = {0}, of_optimizer = {0};
    tt_status status = tt__entries_make(&of_model, (size_t)all->count);
    if (!status)
        status = tt__entries_make(&of_optimizer, (size_t)all->count);
    for (int64_t i = 0; i < all->count && !status; i++) {
        bool optimizers = tt__entry_is_optimizers(all->names[i]);
        tt__entries_add(optimizers ? &of_optimizer : &of_model,
                        all->names[i] + (optimizers ? strlen(TT__OPTIMIZER_PREFIX) : 0), all->tensors[i]);
    }
    if (!status && optimizer)
        status = load_both(model, &of_model, optimizer, &of_optimizer);
    else if (!status)
        status = tt_module_load_state_dict(model, tt__entries_view(&of_model));
    tt__entries_free(&of_model);
    tt__entries_free(&of_optimizer);
    if (!status && progress) {
        progress->epoch = stand.epoch;
        progress->sampler_seed = stand.sampler_seed;
    }
    return status;
}

tt_status tt_checkpoint_load(const char *path, tt_module *model, tt_optimizer *optimizer, tt_progress *progress) {
    if (!path || !model)
        return tt__fail(TT_ERR_INVALID, "tt_checkpoint_load: `%s` is NULL", path ? "model" : "path");
    TT__TRY(tt__progress_check("tt_checkpoint_load", progress));
    tt_safetensors *file;
    TT__TRY(tt_safetensors_load(&file, path));
    tt_status status = load_into(file, model, optimizer, progress);
    if (status)
        tt__fail_prefix("%s", path);
    tt_safetensors_free(file);
    return status;
}
