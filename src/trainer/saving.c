/* Checkpoints of a run: the latest, the best, those that are kept, and going on from one. */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/files/planted.h"
#include "base/machine/clock.h"
#include "base/text/parse.h"
#include "checkpoint/entries.h"
#include "data/loader/loader.h"
#include "parallel/hooks/comm_hook.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char who[] = "tt_trainer_run";

/* ---- the state of the communication hook ----
 *
 * Error feedback differs between ranks, so rank 0 gathers every entry from all ranks, as (world_size, elements): a
 * checkpoint is one file, whole or not there. */

static const char prefix[] = "comm_hook.";

/* Do all ranks have the same entries? Collective. */
static tt_status agree_on_hook_entries(tt_group *group, const tt_named_tensors *own) {
    char **texts = calloc((size_t)own->count + 1, sizeof *texts);
    tt_status status = texts ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of a hook's state", who);
    for (int64_t i = 0; i < own->count && !status; i++)
        if (asprintf(&texts[i], "\"%s\" %s", own->names[i], TT__DESCRIBE(own->tensors[i])) < 0) {
            texts[i] = NULL;
            status = tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of a hook's state", who);
        }
    if (!status)
        status = tt__agree_on(group, who, (const char *const *)texts, (size_t)own->count);
    for (int64_t i = 0; texts && i < own->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

static tt_status gather_hook_entry(tt_trainer *t, const char *name, tt_tensor *own) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    int64_t count = tt_tensor_numel(own);
    tt_tensor *row = tt_reshape(own, TT_SHAPE(1, count));
    tt_tensor *all = !row || t->rank ? NULL : tt_zeros(TT_SHAPE(t->world, count), tt_tensor_dtype(own));
    if (!row || (!all && !t->rank))
        return tt_last_status();
    if (count > 0)
        TT__TRY(tt_tensor_gather_with(
            TT_ARGS(tt_tensor_gather_args, t->a.group, row, all, 0, .file = "the trainer's checkpoint")));
    return t->rank ? TT_OK : tt__dict_add_own(&t->hook_state, all, "%s%s", prefix, name);
}

static tt_status gather_hook_entries(tt_trainer *t) {
    const tt_named_tensors *own = tt_comm_hook_state_dict(t->ddp);
    if (!own)
        return tt_last_status();
    TT__TRY(agree_on_hook_entries(t->a.group, own));
    TT__TRY(tt__dict_init(&t->hook_state, who, (size_t)own->count));
    for (int64_t i = 0; i < own->count; i++)
        TT__TRY(gather_hook_entry(t, own->names[i], own->tensors[i]));
    return TT_OK;
}

/* Gather all ranks' state of the hook on rank 0, where it stays until tt__trainer_forget_hook(). Collective. */
static tt_status gather_hook(tt_trainer *t) {
    if (!t->a.comm_hook || !tt__hook_of(t->ddp))
        return TT_OK;
    const tt__joint_call call = tt__joint_call_begin(t->a.group, who);
    return tt__joint_call_end(&call, gather_hook_entries(t));
}

/* Return the gathered state; NULL: there is none here. */
static const tt_named_tensors *gathered_hook_state(tt_trainer *t) {
    return t->hook_state.count ? tt__dict_finish(&t->hook_state, TT_OK) : NULL;
}

void tt__trainer_forget_hook(tt_trainer *t) { tt__dict_free(&t->hook_state); }

/* Keep this rank's row of an entry. A checkpoint of another number of ranks gives row 0: hooks use it only for entries
 * that are alike on all ranks. */
static tt_status keep_hook_entry(tt_trainer *t, const char *name, tt_tensor *all) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    if (tt_tensor_dim(all) != 2 || tt_tensor_size(all, 0) < 1)
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s%s\": expected a row for each rank, got %s", who, prefix, name,
                        TT__DESCRIBE(all));
    tt_tensor *own = tt_select(all, 0, tt_tensor_size(all, 0) == t->world ? t->rank : 0);
    return tt__dict_add_own(&t->hook_state, own ? tt_clone(own) : NULL, "%s", name);
}

/* Keep this rank's part of the hook's state in a checkpoint. */
static tt_status keep_hook(tt_trainer *t, const tt_named_tensors *more) {
    const size_t length = strlen(prefix);
    TT__TRY(tt__dict_init(&t->hook_state, who, (size_t)more->count));
    for (int64_t i = 0; i < more->count; i++)
        if (!strncmp(more->names[i], prefix, length))
            TT__TRY(keep_hook_entry(t, more->names[i] + length, more->tensors[i]));
    return TT_OK;
}

tt_status tt__trainer_set_hook(tt_trainer *t) {
    if (!t->a.comm_hook)
        return TT_OK;
    const uint64_t errors = tt__error_count();
    tt_status status = t->a.comm_hook(t->ddp, t->a.user);
    if (status)
        return tt__fail_callback(errors, status, "%s: .comm_hook", who);
    if (!t->a.resume || !tt__hook_of(t->ddp))
        return TT_OK;
    status = tt_comm_hook_load_state_dict(t->ddp, tt__dict_finish(&t->hook_state, TT_OK));
    tt__trainer_forget_hook(t);
    return status ? tt__fail_prefix("%s: %s", who, t->a.resume) : TT_OK;
}

/* ---- kept checkpoints: NAME-step-N.safetensors beside NAME.safetensors ---- */

static const char ending[] = ".safetensors";

/* Return the length of `path` without its ending. */
static int stem_length(const char *path) {
    size_t size = strlen(path);
    return (int)(tt__ends_with(path, ending) ? size - strlen(ending) : size);
}

static char *kept_path(const char *path, int64_t step) {
    char *kept;
    int stem = stem_length(path);
    int n = asprintf(&kept, "%.*s-step-%" PRId64 "%s", stem, path, step, path + stem);
    return n < 0 ? NULL : kept;
}

/* Return the step in the name of a kept checkpoint of `path`; -1: it is none. Only names that kept_path() writes count,
 * since these files are removed. */
static int64_t kept_step(const char *path, const char *name) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t stem = (size_t)stem_length(base);
    static const char middle[] = "-step-";
    if (strncmp(name, base, stem) || strncmp(name + stem, middle, strlen(middle)))
        return -1;
    char written[24];
    const char *digits = name + stem + strlen(middle);
    long long step = strtoll(digits, NULL, 10);
    size_t n = (size_t)snprintf(written, sizeof written, "%lld", step);
    return step >= 0 && !strncmp(digits, written, n) && !strcmp(digits + n, base + stem) ? step : -1;
}

/* Open the folder of `path`. */
static DIR *open_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    DIR *folder = name ? opendir(name) : NULL;
    free(name);
    return folder;
}

/* May this run remove the file? In a sticky folder such as /tmp, another user may have files with such names, which
 * only that user can remove. */
static bool may_remove_kept(DIR *folder, const char *name) {
    struct stat info, around;
    if (fstat(dirfd(folder), &around) || fstatat(dirfd(folder), name, &info, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(info.st_mode))
        return false;
    uid_t own = geteuid();
    return !(around.st_mode & S_ISVTX) || own == 0 || info.st_uid == own || around.st_uid == own;
}

static int by_kept_order(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* List the steps of the kept checkpoints, the oldest first, in allocated memory. Those beyond step `now`, where the run
 * is, are of an earlier run, and so the oldest. */
static tt_status list_kept(const char *path, int64_t now, int64_t **steps, size_t *count) {
    size_t room = 0;
    *steps = NULL;
    *count = 0;
    DIR *folder = open_folder_of(path);
    if (!folder)
        return tt__fail_errno(TT_ERR_IO, errno, "can't read the folder of %s", path);
    bool fits = true;
    for (struct dirent *entry; fits && (entry = readdir(folder));) {
        int64_t step = kept_step(path, entry->d_name);
        if (step < 0 || !may_remove_kept(folder, entry->d_name))
            continue;
        int64_t *more = *count < room ? *steps : realloc(*steps, (room = 2 * room + 16) * sizeof *more);
        if ((fits = more != NULL)) {
            *steps = more;
            more[(*count)++] = step > now ? step + INT64_MIN : step; /* before all others */
        }
    }
    closedir(folder);
    if (*count)
        qsort(*steps, *count, sizeof **steps, by_kept_order);
    return fits ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory to list what is kept of it", path);
}

static tt_status remove_kept(const char *path, int64_t step) {
    char *old = kept_path(path, step);
    if (!old)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", path);
    tt_status status = unlink(old) == 0 || errno == ENOENT
                           ? TT_OK
                           : tt__fail_errno(TT_ERR_IO, errno, "can't remove the old checkpoint %s", old);
    free(old);
    return status;
}

/* Remove the oldest kept checkpoints, so that `keep` are left. */
static tt_status remove_old(const char *path, int64_t keep, int64_t now) {
    int64_t *steps;
    size_t count;
    tt_status status = list_kept(path, now, &steps, &count);
    for (size_t i = 0; !status && i < count && count - i > (size_t)keep; i++)
        status = remove_kept(path, steps[i] < 0 ? steps[i] - INT64_MIN : steps[i]);
    free(steps);
    return status;
}

/* ---- saving ---- */

static tt_status write_checkpoint(tt_trainer *t, const char *path) {
    const tt_named_tensors *more = t->a.averager ? tt_model_averager_state_dict(t->a.averager) : gathered_hook_state(t);
    if (t->a.averager && !more)
        return tt_last_status();
    return tt_checkpoint_save(path, t->a.model, t->a.optimizer, &t->progress, .scheduler = t->a.scheduler,
                              .ema = t->a.ema, .scaler = t->a.scaler, .loader = t->same_orders ? t->a.loader : NULL,
                              .more = more);
}

static tt_status save_to(tt_trainer *t, const char *path) {
    TT__TRY(write_checkpoint(t, path));
    return tt__trainer_tell(t, TT_TRAINER_SAVED, path);
}

/* Keep the checkpoint under a second name, by a hard link, which takes no space; where there are none, by a second
 * file. */
static tt_status keep_copy(tt_trainer *t) {
    char *kept = kept_path(t->a.checkpoint, t->progress.step);
    if (!kept)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", t->a.checkpoint);
    unlink(kept);
    char *leads_to = NULL; /* its links' target; a stranger's link fails */
    tt_status status = tt__follow_links(t->a.checkpoint, &leads_to);
    if (!status && linkat(AT_FDCWD, leads_to, AT_FDCWD, kept, 0) != 0)
        status = write_checkpoint(t, kept);
    free(leads_to);
    free(kept);
    return status ? status : remove_old(t->a.checkpoint, t->a.keep, t->progress.step);
}

tt_status tt__trainer_save(tt_trainer *t) {
    int64_t began = tt__now_ns();
    if (!t->a.checkpoint || t->saved_step == t->progress.step)
        return TT_OK;
    t->saved_step = t->progress.step;
    tt_status status = gather_hook(t);
    if (!status && t->rank == 0)
        status = save_to(t, t->a.checkpoint);
    if (!status && t->rank == 0 && t->a.keep > 0)
        status = keep_copy(t);
    tt__trainer_forget_hook(t);
    t->other_ns += tt__now_ns() - began;
    return status;
}

tt_status tt__trainer_save_best(tt_trainer *t) {
    int64_t began = tt__now_ns();
    bool due = t->best_due && t->a.best_checkpoint;
    t->best_due = false;
    tt_status status = due ? gather_hook(t) : TT_OK;
    if (due && !status && t->rank == 0)
        status = save_to(t, t->a.best_checkpoint);
    tt__trainer_forget_hook(t);
    t->other_ns += tt__now_ns() - began;
    return status;
}

tt_status tt__trainer_check_paths(const tt_trainer *t) {
    if (t->rank == 0 && t->a.checkpoint)
        TT__TRY(tt_checkpoint_can_save(t->a.checkpoint));
    if (t->rank == 0 && t->a.best_checkpoint)
        TT__TRY(tt_checkpoint_can_save(t->a.best_checkpoint));
    return TT_OK;
}

/* ---- going on ---- */

static tt_status check_seed(const tt_trainer *t, const tt_progress *saved) {
    if (!t->a.sampler || saved->sampler_seed == t->progress.sampler_seed)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: the sampler had the seed %" PRIu64 ", the one given has %" PRIu64
                    "; tt_checkpoint_progress() tells which to make it with",
                    t->a.resume, saved->sampler_seed, t->progress.sampler_seed);
}

/* Did the run before monitor another metric? False for older checkpoints, which don't tell. */
static bool is_of_another_metric(const tt_trainer *t, const tt_progress *saved) {
    char monitor[sizeof saved->monitor];
    tt__copy_metric_name(monitor, t->monitor);
    return saved->evaluations && *saved->monitor &&
           (strcmp(saved->monitor, monitor) != 0 || (saved->monitor_max != 0) != t->a.monitor_max);
}

/* Check the metric: a scheduler that steps by it remembers a best value, so it needs the same metric as before. */
static tt_status check_monitor(const tt_trainer *t, const tt_progress *saved) {
    if (!t->a.scheduler || t->a.scheduler_when != TT_TRAINER_EACH_EVALUATION || !is_of_another_metric(t, saved))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: the scheduler stepped by \"%s\" (%s is better), it can't go on with .monitor \"%s\" (%s is "
                    "better); resume with the former, or without this scheduler",
                    t->a.resume, saved->monitor, saved->monitor_max ? "more" : "less", t->monitor,
                    t->a.monitor_max ? "more" : "less");
}

/* Let the best value and the patience begin anew. */
static void forget_best(tt_trainer *t) {
    tt_progress *p = &t->progress;
    snprintf(t->monitored_before, sizeof t->monitored_before, "%s %s", p->monitor_max ? "most" : "least", p->monitor);
    p->evaluations = p->stale = p->monitor_max = 0;
    p->best = 0;
    p->monitored = NAN;
    *p->monitor = '\0';
}

static tt_status check_shares(const tt_trainer *t) {
    const tt_sampler *s = t->a.loader->sampler;
    if (s->virtual_ranks != t->a.virtual_ranks)
        return tt__fail(TT_ERR_INVALID,
                        "tt_trainer_run: .virtual_ranks is %d: expected a loader whose tt_distributed_sampler() has as "
                        "many, got one with %" PRId64,
                        t->a.virtual_ranks, s->virtual_ranks);
    if (s->exact) /* also if this rank's share fits: it can't know the others' */
        return tt__fail(TT_ERR_INVALID,
                        "tt_trainer_run: expected as many examples from each virtual rank, got a sampler with .exact, "
                        "which is for evaluation");
    return TT_OK;
}

tt_status tt__trainer_count_batches(tt_trainer *t) {
    t->batches = tt_loader_batches(t->a.loader);
    t->shards = 1;
    if (t->a.virtual_ranks) {
        TT__TRY(check_shares(t));
        t->shards = t->a.loader->sampler->shards;
        tt__shard_in_a_row(t->a.loader, t->a.accumulate);
    }
    t->parts = t->shards * t->a.accumulate;
    t->steps = t->batches / t->parts + (t->batches % t->parts > 0);
    return TT_OK;
}

int64_t tt__trainer_steps_done(const tt_trainer *t) {
    if (!t->goes_on)
        return t->progress.epoch_step < t->steps ? t->progress.epoch_step : 0;
    int64_t left = tt_loader_batches_left(t->a.loader);
    return t->steps - left / t->parts - (left % t->parts > 0);
}

/* Does the checkpoint have the loader's state? It does not if ranks had orders of their own. */
static tt_status find_loader_state(const tt_trainer *t, bool *has) {
    *has = t->same_orders;
    bool may_lack = t->same_orders && !tt__loader_order_is_pure(t->a.loader);
    return may_lack ? tt__checkpoint_has_part(has, t->a.resume, TT__PART_LOADER) : TT_OK;
}

static tt_status load_more(void *user, const tt_named_tensors *state) {
    tt_trainer *t = user;
    return t->a.averager    ? tt_model_averager_load_state_dict(t->a.averager, state)
           : t->a.comm_hook ? keep_hook(t, state)
                            : TT_OK;
}

tt_status tt__trainer_resume(tt_trainer *t) {
    t->same_orders = t->world == 1 || tt__loader_order_is_pure(t->a.loader);
    if (!t->a.resume)
        return TT_OK;
    tt_progress saved = TT_PROGRESS_INIT;
    TT__TRY(tt_checkpoint_progress(t->a.resume, &saved));
    TT__TRY(check_seed(t, &saved));
    TT__TRY(check_monitor(t, &saved));
    TT__TRY(find_loader_state(t, &t->goes_on));
    TT__TRY(tt_checkpoint_load(t->a.resume, t->a.model, t->a.optimizer, &t->progress, .scheduler = t->a.scheduler,
                               .ema = t->a.ema, .scaler = t->a.scaler, .loader = t->goes_on ? t->a.loader : NULL,
                               .load_more = load_more, .load_more_user = t));
    if (is_of_another_metric(t, &t->progress))
        forget_best(t);
    t->progress.epoch_step = tt__trainer_steps_done(t);
    t->batch = t->progress.epoch_step * t->parts;
    t->saved_step = -1;
    return TT_OK;
}
