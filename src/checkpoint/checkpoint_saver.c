/* Saving beside training. The caller's thread copies the state into the snapshot; then a thread writes the snapshot,
 * which nobody else touches until it is joined. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/error.h"
#include "base/process/threads.h"
#include "checkpoint/entries.h"
#include "checkpoint/progress_texts.h"
#include "tensor/shape/shape.h"

static const char who[] = "tt_checkpoint_saver_save";

struct tt_checkpoint_saver {
    pthread_t thread;
    bool running; /* the thread is to be joined */
    char *path;
    tt__entries snapshot;
    tt__progress_texts progress;
    tt__saved_error error; /* of the last write; TT_OK: none, or told */
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

/* ---- the snapshot ---- */

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

/* ---- writing ---- */

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
