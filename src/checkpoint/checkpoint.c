/* The state of a training run in one safetensors file: its parts as entries.h names them, and the progress of training
 * in the metadata. */
#include "base/args.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/process/threads.h"
#include "checkpoint/entries.h"
#include "data/loader/loader.h"
#include "nn/module.h"
#include "optim/dict.h"
#include "tensor/random/generator.h"
#include "tensor/shape/shape.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

tt_status tt_checkpoint_can_save(const char *path) { return tt__atomic_check(path); }

tt_status tt_checkpoint_save_with(const tt_checkpoint_save_args *args, size_t size) {
    static const char who[] = "tt_checkpoint_save";
    tt_checkpoint_save_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.path || !a.model)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", who, a.path ? "model" : "path");
    TT__TRY(tt__progress_check(who, a.progress));
    tt__progress_texts texts;
    tt__entries all = {0};
    tt__progress_write(&texts, a.progress);
    tt_status status = tt__entries_collect(&all, &a);
    if (status)
        tt__fail_prefix("%s", a.path);
    else
        status = tt_safetensors_save(a.path, tt__entries_view(&all), texts.pairs, texts.count);
    tt__entries_free(&all);
    return status;
}

/* ---- loading ---- */

/* Copy the backup to where it came from, which can't fail. */
static void backup_restore(const tt__entries *copies, const tt_named_tensors *to) {
    for (size_t i = 0; i < copies->count; i++)
        (void)!tt_copy(to->tensors[i], copies->tensors[i]);
}

static const tt_tensor *saved_generator(tt__entries *of) {
    return tt_named_tensors_find(tt__entries_view(of), "state");
}

static tt_status check_generator(tt__entries *of) {
    tt_generator probe;
    if (!saved_generator(of))
        return tt__fail(TT_ERR_NOT_FOUND, "entry \"%sstate\" is missing", tt__part_prefixes[TT__PART_GENERATOR]);
    return tt_generator_set_state(&probe, saved_generator(of));
}

/* Check what can be checked without changing anything: after that, only the optimizer may fail. */
static tt_status check_saved_parts(const tt_checkpoint_load_args *a, tt__entries *of) {
    /* the model first: if the file is of another model, its error says most */
    TT__TRY(tt__module_check_state(a->model, tt__entries_view(&of[TT__PART_MODEL])));
    if (a->scheduler)
        TT__TRY(tt__lr_check_state(a->scheduler, tt__entries_view(&of[TT__PART_SCHEDULER])));
    if (a->ema)
        TT__TRY(tt__ema_check_state(a->ema, tt__entries_view(&of[TT__PART_EMA])));
    if (a->scaler)
        TT__TRY(tt__grad_scaler_check_state(a->scaler, tt__entries_view(&of[TT__PART_SCALER])));
    if (a->generator)
        TT__TRY(check_generator(&of[TT__PART_GENERATOR]));
    return a->loader ? tt__loader_check_state(a->loader, tt__entries_view(&of[TT__PART_LOADER])) : TT_OK;
}

/* Load model and optimizer, or neither. */
static tt_status load_both(const tt_checkpoint_load_args *a, tt__entries *of) {
    const tt_named_tensors *current = tt_module_state_dict(a->model);
    tt__entries before = {0};
    tt_status status = current ? tt__entries_copy(&before, current) : tt_last_status();
    if (!status)
        status = tt_module_load_state_dict(a->model, tt__entries_view(&of[TT__PART_MODEL]));
    if (!status) {
        status = tt_optimizer_load_state_dict(a->optimizer, tt__entries_view(&of[TT__PART_OPTIMIZER]));
        if (status)
            backup_restore(&before, current);
    }
    tt__entries_free_copies(&before);
    return status;
}

static tt_status load_parts(const tt_checkpoint_load_args *a, tt__entries *of) {
    TT__TRY(check_saved_parts(a, of));
    TT__TRY(a->optimizer ? load_both(a, of)
                         : tt_module_load_state_dict(a->model, tt__entries_view(&of[TT__PART_MODEL])));
    if (a->scheduler)
        TT__TRY(tt_lr_scheduler_load_state_dict(a->scheduler, tt__entries_view(&of[TT__PART_SCHEDULER])));
    if (a->ema)
        TT__TRY(tt_ema_load_state_dict(a->ema, tt__entries_view(&of[TT__PART_EMA])));
    if (a->scaler)
        TT__TRY(tt_grad_scaler_load_state_dict(a->scaler, tt__entries_view(&of[TT__PART_SCALER])));
    if (a->generator)
        TT__TRY(tt_generator_set_state(a->generator, saved_generator(&of[TT__PART_GENERATOR])));
    if (a->loader)
        TT__TRY(tt_loader_load_state_dict(a->loader, tt__entries_view(&of[TT__PART_LOADER])));
    if (!a->load_more)
        return TT_OK;
    const uint64_t errors = tt__error_count();
    tt_status status = a->load_more(a->load_more_user, tt__entries_view(&of[TT__PART_MORE]));
    return status && tt__error_count() == errors ? tt__fail(status, ".load_more: %s", tt_status_text(status)) : status;
}

/* Sort a file's entries by part, without their prefixes. */
static tt_status sort_entries(const tt_named_tensors *all, tt__entries *of) {
    for (int part = 0; part < TT__PARTS; part++)
        TT__TRY(tt__entries_make(&of[part], (size_t)all->count));
    for (int64_t i = 0; i < all->count; i++) {
        const int part = tt__part_of(all->names[i]);
        tt__entries_add(&of[part], all->names[i] + strlen(tt__part_prefixes[part]), all->tensors[i]);
    }
    return TT_OK;
}

/* Copy all fields but `size`, which stays the caller's. */
static void take_progress(tt_progress *progress, const tt_progress *read) {
    size_t size = progress->size;
    *progress = *read;
    progress->size = size;
}

static tt_status load_into(const tt_safetensors *file, const tt_checkpoint_load_args *a) {
    tt_progress stand;
    TT__TRY(tt__progress_read(file, &stand));
    tt__entries of[TT__PARTS] = {{0}};
    tt_status status = sort_entries(tt_safetensors_tensors(file), of);
    if (!status)
        status = load_parts(a, of);
    for (int part = 0; part < TT__PARTS; part++)
        tt__entries_free(&of[part]);
    if (!status && a->progress)
        take_progress(a->progress, &stand);
    return status;
}

tt_status tt_checkpoint_load_with(const tt_checkpoint_load_args *args, size_t size) {
    static const char who[] = "tt_checkpoint_load";
    tt_checkpoint_load_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.path || !a.model)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", who, a.path ? "model" : "path");
    TT__TRY(tt__progress_check(who, a.progress));
    tt_safetensors *file;
    TT__TRY(tt_safetensors_load(&file, a.path));
    tt_status status = load_into(file, &a);
    if (status)
        tt__fail_prefix("%s", a.path);
    tt_safetensors_free(file);
    return status;
}

tt_status tt_checkpoint_progress(const char *path, tt_progress *progress) {
    static const char who[] = "tt_checkpoint_progress";
    if (!path || !progress)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", who, path ? "progress" : "path");
    TT__TRY(tt__progress_check(who, progress));
    tt_safetensors *file;
    tt_progress read;
    TT__TRY(tt_safetensors_load(&file, path));
    tt_status status = tt__progress_read(file, &read);
    if (status)
        tt__fail_prefix("%s", path);
    else
        take_progress(progress, &read);
    tt_safetensors_free(file);
    return status;
}

tt_status tt__checkpoint_has_part(bool *has, const char *path, tt__state_part part) {
    tt_safetensors *file;
    *has = false;
    TT__TRY(tt_safetensors_load(&file, path));
    const tt_named_tensors *all = tt_safetensors_tensors(file);
    for (int64_t i = 0; i < all->count && !*has; i++)
        *has = tt__part_of(all->names[i]) == (int)part;
    tt_safetensors_free(file);
    return TT_OK;
}

/* ---- saving beside training ----
 * The caller's thread copies the state into the snapshot. Then a thread writes the snapshot, which nobody else touches
 * until that thread is joined. */

static const char who[] = "tt_checkpoint_saver_save";

struct tt_checkpoint_saver {
    pthread_t thread;
    bool running; /* the thread is to be joined */
    char *path;
    tt__entries snapshot;
    tt__progress_texts progress;
    tt__saved_error error; /* of the last write; TT_OK: none, or it was returned */
};

tt_checkpoint_saver *tt_checkpoint_saver_new(void) {
    tt_checkpoint_saver *saver = calloc(1, sizeof *saver);
    return saver ? saver : tt__fail_null(TT_ERR_MEMORY, "tt_checkpoint_saver_new: no memory");
}

tt_status tt_checkpoint_saver_wait(tt_checkpoint_saver *saver) {
    if (!saver)
        return tt__fail_argument("tt_checkpoint_saver_wait: the saver is NULL");
    if (saver->running)
        pthread_join(saver->thread, NULL);
    saver->running = false;
    tt_status status = saver->error.status;
    if (status)
        tt__error_restore(&saver->error);
    saver->error.status = TT_OK;
    return status;
}

void tt_checkpoint_saver_free(tt_checkpoint_saver *saver) {
    if (!saver)
        return;
    tt_ignore(tt_checkpoint_saver_wait(saver));
    tt__entries_free_copies(&saver->snapshot);
    free(saver->path);
    free(saver);
}

/* ---- saving beside training: the snapshot ---- */

/* Has the snapshot a place for each of the entries? */
static bool snapshot_fits(const tt__entries *snapshot, const tt_named_tensors *entries) {
    if ((int64_t)snapshot->count != entries->count)
        return false;
    for (size_t i = 0; i < snapshot->count; i++) {
        const tt_shape mine = tt_tensor_shape(snapshot->tensors[i]), shape = tt_tensor_shape(entries->tensors[i]);
        if (strcmp(snapshot->names[i], entries->names[i]) || !tt__shape_equal(&mine, &shape) ||
            tt_tensor_dtype(snapshot->tensors[i]) != tt_tensor_dtype(entries->tensors[i]))
            return false;
    }
    return true;
}

static tt_status snapshot_take(tt__entries *snapshot, const tt_named_tensors *entries) {
    if (!snapshot_fits(snapshot, entries)) {
        tt__entries_free_copies(snapshot);
        tt_status status = tt__entries_copy(snapshot, entries);
        if (status)
            tt__entries_free_copies(snapshot);
        return status;
    }
    for (size_t i = 0; i < snapshot->count; i++)
        TT__TRY(tt_copy(snapshot->tensors[i], entries->tensors[i]));
    return TT_OK;
}

static tt_status snapshot_path(tt_checkpoint_saver *saver, const char *path) {
    if (saver->path && !strcmp(saver->path, path))
        return TT_OK;
    char *copy = strdup(path);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", who);
    free(saver->path);
    saver->path = copy;
    return TT_OK;
}

/* ---- saving beside training: writing ---- */

static void *write_snapshot(void *arg) {
    tt_checkpoint_saver *saver = arg;
    if (tt_safetensors_save(saver->path, tt__entries_view(&saver->snapshot), saver->progress.pairs,
                            saver->progress.count))
        tt__error_save(&saver->error);
    return NULL;
}

tt_status tt_checkpoint_saver_save_with(tt_checkpoint_saver *saver, const tt_checkpoint_save_args *args, size_t size) {
    tt_checkpoint_save_args a;
    TT__ARGS_COPY(a, args, size);
    if (!saver || !a.path || !a.model)
        return tt__fail_argument("%s: the %s is NULL", who, !saver ? "saver" : !a.path ? "path" : "model");
    TT__TRY(tt__progress_check(who, a.progress));
    TT__TRY(tt_checkpoint_saver_wait(saver));
    tt__entries all = {0};
    tt_status status = tt__entries_collect(&all, &a);
    if (!status)
        status = snapshot_take(&saver->snapshot, tt__entries_view(&all));
    tt__entries_free(&all);
    if (status)
        return tt__fail_prefix("%s", a.path);
    TT__TRY(snapshot_path(saver, a.path));
    tt__progress_write(&saver->progress, a.progress);
    TT__TRY(tt__thread_create(&saver->thread, write_snapshot, saver, "the thread that writes a checkpoint"));
    saver->running = true;
    return TT_OK;
}
