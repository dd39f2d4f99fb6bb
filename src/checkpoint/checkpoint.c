/* The state of a training run in one safetensors file: the model's entries under their own names, those of the
 * optimizer, the scheduler and the averages behind a prefix, and the progress of training in the metadata. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/parse.h"
#include "checkpoint/safetensors.h"
#include "optim/loadable.h"

/* What a checkpoint is made of, and what the names of each part begin with. */
enum { PART_MODEL, PART_OPTIMIZER, PART_SCHEDULER, PART_EMA, PARTS };
static const char *const prefixes[PARTS] = {"", "optimizer.", "lr_scheduler.", "ema."};

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

/* Return the part that an entry of a file belongs to. */
static int part_of(const char *name) {
    int part = PARTS - 1;
    while (part > PART_MODEL && strncmp(name, prefixes[part], strlen(prefixes[part])) != 0)
        part--;
    return part;
}

/* ---- saving ---- */

static tt_status list_add_prefixed(list *l, const char *prefix, const char *name, tt_tensor *tensor) {
    if (asprintf(&l->made[l->count], "%s%s", prefix, name) < 0) {
        l->made[l->count] = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for the name %s%s", prefix, name);
    }
    entries_add(l, l->made[l->count], tensor);
    return TT_OK;
}

static tt_status collect_model(list *l, const tt_named_tensors *model) {
    for (int64_t i = 0; i < model->count; i++) {
        const int part = part_of(model->names[i]);
        if (part != PART_MODEL)
            return tt__fail(TT_ERR_INVALID,
                            "the model's \"%s\" can't be told from entries of \"%s\", another part: rename it",
                            model->names[i], prefixes[part]);
        entries_add(l, model->names[i], model->tensors[i]);
    }
    return TT_OK;
}

/* Collect all entries of all parts that are given. */
static tt_status collect_all(list *l, const tt_checkpoint_save_args *a) {
    const tt_named_tensors *const none = TT_NAMED_TENSORS(0, NULL, NULL);
    const tt_named_tensors *of[PARTS] = {
        tt_module_state_dict(a->model), a->optimizer ? tt_optimizer_state_dict(a->optimizer) : none,
        a->scheduler ? tt_lr_scheduler_state_dict(a->scheduler) : none, a->ema ? tt_ema_state_dict(a->ema) : none};
    size_t room = 0;
    for (int part = 0; part < PARTS; part++) {
        if (!of[part])
            return tt_last_status();
        room += (size_t)of[part]->count;
    }
    TT__TRY(list_make(l, room));
    TT__TRY(collect_model(l, of[PART_MODEL]));
    for (int part = PART_MODEL + 1; part < PARTS; part++)
        for (int64_t i = 0; i < of[part]->count; i++)
            TT__TRY(list_add_prefixed(l, prefixes[part], of[part]->names[i], of[part]->tensors[i]));
    return TT_OK;
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

tt_status tt_checkpoint_save_with(const tt_checkpoint_save_args *args, size_t size) {
    static const char who[] = "tt_checkpoint_save";
    tt_checkpoint_save_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.path || !a.model)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", who, a.path ? "model" : "path");
    TT__TRY(check_progress(who, a.progress));
    char epoch[24], seed[24];
    tt_metadata metadata[] = {{EPOCH, epoch}, {SAMPLER_SEED, seed}};
    if (a.progress) {
        snprintf(epoch, sizeof epoch, "%" PRId64, a.progress->epoch);
        snprintf(seed, sizeof seed, "%" PRIu64, a.progress->sampler_seed);
    }
    list all = {0};
    tt_status status = collect_all(&all, &a);
    if (status)
        tt__fail_prefix("%s", a.path);
    else
        status = tt_safetensors_save(a.path, list_view(&all), metadata, a.progress ? 2 : 0);
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

/* Check what can be checked without changing anything: then only the model and the optimizer may fail. */
static tt_status check_saved_parts(const tt_checkpoint_load_args *a, list *of) {
    if (a->scheduler)
        TT__TRY(tt__lr_check_state(a->scheduler, list_view(&of[PART_SCHEDULER])));
    return a->ema ? tt__ema_check_state(a->ema, list_view(&of[PART_EMA])) : TT_OK;
}

/* Load model and optimizer, or neither. */
static tt_status load_both(const tt_checkpoint_load_args *a, list *of) {
    const tt_named_tensors *current = tt_module_state_dict(a->model);
    list before = {0};
    tt_status status = current ? backup_make(&before, current) : tt_last_status();
    if (!status)
        status = tt_module_load_state_dict(a->model, list_view(&of[PART_MODEL]));
    if (!status) {
        status = tt_optimizer_load_state_dict(a->optimizer, list_view(&of[PART_OPTIMIZER]));
        if (status)
            backup_restore(&before, current);
    }
    backup_free(&before);
    return status;
}

static tt_status load_parts(const tt_checkpoint_load_args *a, list *of) {
    TT__TRY(check_saved_parts(a, of));
    TT__TRY(a->optimizer ? load_both(a, of) : tt_module_load_state_dict(a->model, list_view(&of[PART_MODEL])));
    if (a->scheduler)
        TT__TRY(tt_lr_scheduler_load_state_dict(a->scheduler, list_view(&of[PART_SCHEDULER])));
    return a->ema ? tt_ema_load_state_dict(a->ema, list_view(&of[PART_EMA])) : TT_OK;
}

/* Sort a file's entries by part, without their prefixes. */
static tt_status sort_entries(const tt_named_tensors *all, list *of) {
    for (int part = 0; part < PARTS; part++)
        TT__TRY(list_make(&of[part], (size_t)all->count));
    for (int64_t i = 0; i < all->count; i++) {
        const int part = part_of(all->names[i]);
        entries_add(&of[part], all->names[i] + strlen(prefixes[part]), all->tensors[i]);
    }
    return TT_OK;
}

static tt_status load_into(const tt_safetensors *file, const tt_checkpoint_load_args *a) {
    tt_progress stand;
    TT__TRY(checkpoint_progress(file, &stand));
    list of[PARTS] = {{0}};
    tt_status status = sort_entries(tt_safetensors_tensors(file), of);
    if (!status)
        status = load_parts(a, of);
    for (int part = 0; part < PARTS; part++)
        list_free(&of[part]);
    if (!status && a->progress) {
        a->progress->epoch = stand.epoch;
        a->progress->sampler_seed = stand.sampler_seed;
    }
    return status;
}

tt_status tt_checkpoint_load_with(const tt_checkpoint_load_args *args, size_t size) {
    static const char who[] = "tt_checkpoint_load";
    tt_checkpoint_load_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.path || !a.model)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", who, a.path ? "model" : "path");
    TT__TRY(check_progress(who, a.progress));
    tt_safetensors *file;
    TT__TRY(tt_safetensors_load(&file, a.path));
    tt_status status = load_into(file, &a);
    if (status)
        tt__fail_prefix("%s", a.path);
    tt_safetensors_free(file);
    return status;
}
