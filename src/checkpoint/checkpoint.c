/* The state of a training run in one safetensors file: the model's entries under their own names, the optimizer's under
 * "optimizer.", and the progress of training in the metadata. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/parse.h"
#include "checkpoint/safetensors.h"

#define OPTIMIZER "optimizer."
#define EPOCH "tutti.epoch"
#define SAMPLER_SEED "tutti.sampler_seed"

/* A list under construction: names are borrowed, or in `made` where they had to be put together. */
typedef struct list {
    size_t count;
    const char **names;
    tt_tensor **tensors;
    char **made;
    tt_named_tensors view;
} list;

static void list_free(list *l) {
    for (size_t i = 0; l->made && i < l->count; i++)
        free(l->made[i]);
    free(l->made);
    free(l->tensors);
    free(l->names);
}

static tt_status list_make(list *l, size_t room) {
    room = room ? room : 1;
    *l = (list){.names = calloc(room, sizeof *l->names),
                .tensors = calloc(room, sizeof *l->tensors),
                .made = calloc(room, sizeof *l->made)};
    if (l->names && l->tensors && l->made)
        return TT_OK;
    list_free(l);
    *l = (list){0};
    return tt__fail(TT_ERR_MEMORY, "no memory to list a checkpoint's %zu tensors", room);
}

static void entries_add(list *l, const char *name, tt_tensor *tensor) {
    l->names[l->count] = name;
    l->tensors[l->count++] = tensor;
}

static const tt_named_tensors *list_view(list *l) {
    l->view = (tt_named_tensors){sizeof l->view, (int64_t)l->count, l->names, l->tensors};
    return &l->view;
}

static bool is_optimizers(const char *name) { return strncmp(name, OPTIMIZER, strlen(OPTIMIZER)) == 0; }

/* ---- saving ---- */

static tt_status list_add_optimizers(list *l, const char *name, tt_tensor *tensor) {
    if (asprintf(&l->made[l->count], OPTIMIZER "%s", name) < 0) {
        l->made[l->count] = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for the name " OPTIMIZER "%s", name);
    }
    entries_add(l, l->made[l->count], tensor);
    return TT_OK;
}

static tt_status collect_entries(list *l, const tt_named_tensors *model, const tt_named_tensors *optimizer) {
    for (int64_t i = 0; i < model->count; i++) {
        if (is_optimizers(model->names[i]))
            return tt__fail(TT_ERR_INVALID, "the model's \"%s\" can't be told from the optimizer's entries: rename it",
                            model->names[i]);
        entries_add(l, model->names[i], model->tensors[i]);
    }
    for (int64_t i = 0; i < optimizer->count; i++)
        TT__TRY(list_add_optimizers(l, optimizer->names[i], optimizer->tensors[i]));
    return TT_OK;
}

/* Collect all entries of model and optimizer (may be NULL). */
static tt_status collect_all(list *l, tt_module *model, tt_optimizer *optimizer) {
    const tt_named_tensors *of_model = tt_module_state_dict(model);
    const tt_named_tensors *of_optimizer =
        optimizer ? tt_optimizer_state_dict(optimizer) : TT_NAMED_TENSORS(0, NULL, NULL);
    if (!of_model || !of_optimizer)
        return tt_last_status();
    TT__TRY(list_make(l, (size_t)(of_model->count + of_optimizer->count)));
    return collect_entries(l, of_model, of_optimizer);
}

/* NULL is allowed. */
static tt_status check_progress(const char *who, const tt_progress *progress) {
    if (progress && progress->size < sizeof *progress)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected a progress made by TT_PROGRESS or TT_PROGRESS_INIT, got one of size %zu", who,
                        progress->size);
    return TT_OK;
}

tt_status tt_checkpoint_can_save(const char *path) { return tt__atomic_check(path); }

tt_status tt_checkpoint_save(const char *path, tt_module *model, tt_optimizer *optimizer, const tt_progress *progress) {
    if (!path || !model)
        return tt__fail(TT_ERR_INVALID, "tt_checkpoint_save: `%s` is NULL", path ? "model" : "path");
    TT__TRY(check_progress("tt_checkpoint_save", progress));
    char epoch[24], seed[24];
    tt_metadata metadata[] = {{EPOCH, epoch}, {SAMPLER_SEED, seed}};
    if (progress) {
        snprintf(epoch, sizeof epoch, "%" PRId64, progress->epoch);
        snprintf(seed, sizeof seed, "%" PRIu64, progress->sampler_seed);
    }
    list all = {0};
    tt_status status = collect_all(&all, model, optimizer);
    if (status)
        tt__fail_prefix("%s", path);
    else
        status = tt_safetensors_save(path, list_view(&all), metadata, progress ? 2 : 0);
    list_free(&all);
    return status;
}

/* ---- loading ---- */

static tt_status parse_u64(const char *what, const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9')
        return tt__fail(TT_ERR_INVALID, "%s: expected a whole number, got \"%s\"", what, text);
    return TT_OK;
}

static tt_status checkpoint_progress(const tt_safetensors *file, tt_progress *progress) {
    *progress = (tt_progress)TT_PROGRESS_INIT;
    const char *epoch = tt_safetensors_metadata(file, EPOCH), *seed = tt_safetensors_metadata(file, SAMPLER_SEED);
    if ((epoch && tt__parse_i64(EPOCH, epoch, 0, INT64_MAX, &progress->epoch)) ||
        (seed && parse_u64(SAMPLER_SEED, seed, &progress->sampler_seed)))
        return tt__fail(TT_ERR_FORMAT, "%s", tt_last_error());
    return TT_OK;
}

/* Copy the model's tensors, so that a failure after loading them can be undone. */
static tt_status backup_make(list *copies, const tt_named_tensors *of) {
    TT__TRY(list_make(copies, (size_t)of->count));
    for (int64_t i = 0; i < of->count; i++) {
        tt_tensor *copy = tt_keep(tt_empty(tt_tensor_shape(of->tensors[i]), tt_tensor_dtype(of->tensors[i])));
        if (!copy)
            return tt_last_status();
        entries_add(copies, of->names[i], copy);
        TT__TRY(tt_copy(copy, of->tensors[i]));
    }
    return TT_OK;
}

/* Copy the backup to where it came from, which can't fail. */
static void backup_restore(const list *copies, const tt_named_tensors *to) {
    for (size_t i = 0; i < copies->count; i++)
        (void)!tt_copy(to->tensors[i], copies->tensors[i]);
}

static void backup_free(list *copies) {
    for (size_t i = 0; i < copies->count; i++)
        tt_tensor_free(copies->tensors[i]);
    list_free(copies);
}

static tt_status load_both(tt_module *model, list *of_model, tt_optimizer *optimizer, list *of_optimizer) {
    const tt_named_tensors *current = tt_module_state_dict(model);
    list before = {0};
    tt_status status = current ? backup_make(&before, current) : tt_last_status();
    if (!status)
        status = tt_module_load_state_dict(model, list_view(of_model));
    if (!status) {
        status = tt_optimizer_load_state_dict(optimizer, list_view(of_optimizer));
        if (status)
            backup_restore(&before, current);
    }
    backup_free(&before);
    return status;
}

static tt_status load_into(const tt_safetensors *file, tt_module *model, tt_optimizer *optimizer,
                           tt_progress *progress) {
    tt_progress stand;
    TT__TRY(checkpoint_progress(file, &stand));
    const tt_named_tensors *all = tt_safetensors_tensors(file);
    list of_model = {0}, of_optimizer = {0};
    tt_status status = list_make(&of_model, (size_t)all->count);
    if (!status)
        status = list_make(&of_optimizer, (size_t)all->count);
    for (int64_t i = 0; i < all->count && !status; i++) {
        bool optimizers = is_optimizers(all->names[i]);
        entries_add(optimizers ? &of_optimizer : &of_model, all->names[i] + (optimizers ? strlen(OPTIMIZER) : 0),
                    all->tensors[i]);
    }
    if (!status && optimizer)
        status = load_both(model, &of_model, optimizer, &of_optimizer);
    else if (!status)
        status = tt_module_load_state_dict(model, list_view(&of_model));
    list_free(&of_model);
    list_free(&of_optimizer);
    if (!status && progress) {
        progress->epoch = stand.epoch;
        progress->sampler_seed = stand.sampler_seed;
    }
    return status;
}

tt_status tt_checkpoint_load(const char *path, tt_module *model, tt_optimizer *optimizer, tt_progress *progress) {
    if (!path || !model)
        return tt__fail(TT_ERR_INVALID, "tt_checkpoint_load: `%s` is NULL", path ? "model" : "path");
    TT__TRY(check_progress("tt_checkpoint_load", progress));
    tt_safetensors *file;
    TT__TRY(tt_safetensors_load(&file, path));
    tt_status status = load_into(file, model, optimizer, progress);
    if (status)
        tt__fail_prefix("%s", path);
    tt_safetensors_free(file);
    return status;
}
