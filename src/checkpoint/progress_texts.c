#include "checkpoint/progress_texts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"

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

/* Put "KEY" and what was printed to values[count]. */
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
