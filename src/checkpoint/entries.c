#include "checkpoint/entries.h"

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tt__part_prefixes[TT__PARTS] = {"",        "optimizer.", "lr_scheduler.", "ema.",
                                                  "loader.", "generator.", "grad_scaler.",  "more."};

int tt__part_of(const char *name) {
    int part = TT__PARTS - 1;
    while (part > TT__PART_MODEL && strncmp(name, tt__part_prefixes[part], strlen(tt__part_prefixes[part])) != 0)
        part--;
    return part;
}

void tt__entries_free(tt__entries *e) {
    for (size_t i = 0; e->made && i < e->count; i++)
        free(e->made[i]);
    tt_tensor_free(e->generator);
    free(e->made);
    free(e->tensors);
    free(e->names);
    *e = (tt__entries){0};
}

void tt__entries_free_copies(tt__entries *e) {
    for (size_t i = 0; i < e->count; i++)
        tt_tensor_free(e->tensors[i]);
    tt__entries_free(e);
}

tt_status tt__entries_make(tt__entries *e, size_t room) {
    room = room ? room : 1;
    *e = (tt__entries){.names = calloc(room, sizeof *e->names),
                       .tensors = calloc(room, sizeof *e->tensors),
                       .made = calloc(room, sizeof *e->made)};
    if (e->names && e->tensors && e->made)
        return TT_OK;
    tt__entries_free(e);
    tt__fail(TT_ERR_MEMORY, "no memory to list a checkpoint's %zu tensors", room);
    return TT_ERR_MEMORY;
}

void tt__entries_add(tt__entries *e, const char *name, tt_tensor *tensor) {
    e->names[e->count] = name;
    e->tensors[e->count++] = tensor;
}

const tt_named_tensors *tt__entries_view(tt__entries *e) {
    e->view = (tt_named_tensors){sizeof e->view, (int64_t)e->count, e->names, e->tensors};
    return &e->view;
}

/* ---- collecting ---- */

static tt_status add_prefixed(tt__entries *e, const char *prefix, const char *name, tt_tensor *tensor) {
    if (asprintf(&e->made[e->count], "%s%s", prefix, name) < 0) {
        e->made[e->count] = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for the name %s%s", prefix, name);
    }
    tt__entries_add(e, e->made[e->count], tensor);
    return TT_OK;
}

static tt_status collect_model(tt__entries *e, const tt_named_tensors *model) {
    for (int64_t i = 0; i < model->count; i++) {
        const int part = tt__part_of(model->names[i]);
        if (part != TT__PART_MODEL)
            return tt__fail(TT_ERR_INVALID,
                            "the model's \"%s\" can't be told from entries of \"%s\", another part: rename it",
                            model->names[i], tt__part_prefixes[part]);
        tt__entries_add(e, model->names[i], model->tensors[i]);
    }
    return TT_OK;
}

/* Add the state of a generator, a tensor that the list owns. */
static tt_status add_generator(tt__entries *e, tt_generator *generator) {
    e->generator = tt_keep(tt_generator_get_state(generator));
    return e->generator ? add_prefixed(e, tt__part_prefixes[TT__PART_GENERATOR], "state", e->generator)
                        : tt_last_status();
}

tt_status tt__entries_collect(tt__entries *e, const tt_checkpoint_save_args *a) {
    const tt_named_tensors *const none = TT_NAMED_TENSORS(0, NULL, NULL);
    const tt_named_tensors *of[TT__PARTS] = {tt_module_state_dict(a->model),
                                             a->optimizer ? tt_optimizer_state_dict(a->optimizer) : none,
                                             a->scheduler ? tt_lr_scheduler_state_dict(a->scheduler) : none,
                                             a->ema ? tt_ema_state_dict(a->ema) : none,
                                             a->loader ? tt_loader_state_dict(a->loader) : none,
                                             none,
                                             a->scaler ? tt_grad_scaler_state_dict(a->scaler) : none,
                                             a->more ? a->more : none};
    size_t room = 0;
    for (int part = 0; part < TT__PARTS; part++) {
        if (!of[part])
            return tt_last_status();
        room += (size_t)of[part]->count;
    }
    TT__TRY(tt__entries_make(e, room + 1));
    TT__TRY(collect_model(e, of[TT__PART_MODEL]));
    for (int part = TT__PART_MODEL + 1; part < TT__PARTS; part++)
        for (int64_t i = 0; i < of[part]->count; i++)
            TT__TRY(add_prefixed(e, tt__part_prefixes[part], of[part]->names[i], of[part]->tensors[i]));
    return a->generator ? add_generator(e, a->generator) : TT_OK;
}

tt_status tt__entries_copy(tt__entries *copies, const tt_named_tensors *of) {
    TT__TRY(tt__entries_make(copies, (size_t)of->count));
    for (int64_t i = 0; i < of->count; i++) {
        char *name = strdup(of->names[i]);
        if (!name)
            return tt__fail(TT_ERR_MEMORY, "no memory for the name %s", of->names[i]);
        copies->made[copies->count] = name;
        tt__entries_add(copies, name,
                        tt_keep(tt_empty(tt_tensor_shape(of->tensors[i]), tt_tensor_dtype(of->tensors[i]))));
        if (!copies->tensors[i])
            return tt_last_status();
        TT__TRY(tt_copy(copies->tensors[i], of->tensors[i]));
    }
    return TT_OK;
}

/* ---- progress ---- */

#define EPOCH "tutti.epoch"
#define SAMPLER_SEED "tutti.sampler_seed"
#define MONITOR "tutti.monitor"

/* Numbers that are written unless they are 0. */
static const struct {
    const char *key;
    size_t offset;
} counts[] = {
    {"tutti.step", offsetof(tt_progress, step)},
    {"tutti.epoch_step", offsetof(tt_progress, epoch_step)},
    {"tutti.evaluations", offsetof(tt_progress, evaluations)},
    {"tutti.stale", offsetof(tt_progress, stale)},
    {"tutti.monitor_max", offsetof(tt_progress, monitor_max)},
};

/* Numbers that are written if they are finite; `best` if there is one. */
static const struct {
    const char *key;
    size_t offset;
} reals[] = {
    {"tutti.best", offsetof(tt_progress, best)},
    {"tutti.loss", offsetof(tt_progress, loss)},
    {"tutti.monitored", offsetof(tt_progress, monitored)},
};

tt_status tt__progress_check(const char *who, const tt_progress *progress) {
    if (progress && progress->size < sizeof *progress)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected a progress made by TT_PROGRESS or TT_PROGRESS_INIT, got one of size %zu", who,
                        progress->size);
    return TT_OK;
}

/* Add the pair of `key` and the text that was printed to values[count]. */
static void put_pair(tt__progress_texts *texts, const char *key) {
    char *text = texts->values[texts->count];
    texts->pairs[texts->count++] = (tt_metadata){key, text};
}

void tt__progress_write(tt__progress_texts *texts, const tt_progress *progress) {
    *texts = (tt__progress_texts){.count = 0};
    if (!progress)
        return;
    snprintf(texts->values[texts->count], sizeof *texts->values, "%" PRId64, progress->epoch);
    put_pair(texts, EPOCH);
    snprintf(texts->values[texts->count], sizeof *texts->values, "%" PRIu64, progress->sampler_seed);
    put_pair(texts, SAMPLER_SEED);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t count = *(const int64_t *)((const char *)progress + counts[i].offset);
        if (!count)
            continue;
        snprintf(texts->values[texts->count], sizeof *texts->values, "%" PRId64, count);
        put_pair(texts, counts[i].key);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double real = *(const double *)(const void *)((const char *)progress + reals[i].offset);
        bool is_best = reals[i].offset == offsetof(tt_progress, best);
        if (!isfinite(real) || (is_best && !progress->evaluations))
            continue;
        tt__format(texts->values[texts->count], sizeof *texts->values, "%.17g", real);
        put_pair(texts, reals[i].key);
    }
    if (*progress->monitor) {
        tt__copy_metric_name(texts->values[texts->count], progress->monitor);
        put_pair(texts, MONITOR);
    }
}

void tt__copy_metric_name(char *to, const char *name) {
    snprintf(to, sizeof((tt_progress *)0)->monitor, "%s", name);
    tt__make_plain_name(to);
}

static tt_status parse_u64(const char *what, const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9')
        return tt__fail(TT_ERR_INVALID, "%s: expected a whole number, got \"%s\"", what, text);
    return TT_OK;
}

tt_status tt__progress_read(const tt_safetensors *file, tt_progress *progress) {
    *progress = (tt_progress)TT_PROGRESS_INIT;
    const char *epoch = tt_safetensors_metadata(file, EPOCH), *seed = tt_safetensors_metadata(file, SAMPLER_SEED);
    if ((epoch && tt__parse_i64(EPOCH, epoch, 0, INT64_MAX, &progress->epoch)) ||
        (seed && parse_u64(SAMPLER_SEED, seed, &progress->sampler_seed)))
        return tt__fail(TT_ERR_FORMAT, "%s", tt_last_error());
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t *count = (int64_t *)((char *)progress + counts[i].offset);
        const char *text = tt_safetensors_metadata(file, counts[i].key);
        if (text && tt__parse_i64(counts[i].key, text, 0, INT64_MAX, count))
            return tt__fail(TT_ERR_FORMAT, "%s", tt_last_error());
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double *real = (double *)(void *)((char *)progress + reals[i].offset);
        const char *text = tt_safetensors_metadata(file, reals[i].key);
        if (text && tt__parse_f64(reals[i].key, text, real))
            return tt__fail(TT_ERR_FORMAT, "%s", tt_last_error());
    }
    const char *monitor = tt_safetensors_metadata(file, MONITOR);
    tt__copy_metric_name(progress->monitor, monitor ? monitor : "");
    return TT_OK;
}
