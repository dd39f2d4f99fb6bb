#include "checkpoint/progress_texts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/parse.h"

#define EPOCH "tutti.epoch"
#define SAMPLER_SEED "tutti.sampler_seed"

tt_status tt__progress_check(const char *who, const tt_progress *progress) {
    if (progress && progress->size < sizeof *progress)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected a progress made by TT_PROGRESS or TT_PROGRESS_INIT, got one of size %zu", who,
                        progress->size);
    return TT_OK;
}

void tt__progress_write(tt__progress_texts *texts, const tt_progress *progress) {
    *texts = (tt__progress_texts){.count = 0};
    if (!progress)
        return;
    snprintf(texts->epoch, sizeof texts->epoch, "%" PRId64, progress->epoch);
    snprintf(texts->seed, sizeof texts->seed, "%" PRIu64, progress->sampler_seed);
    texts->pairs[0] = (tt_metadata){EPOCH, texts->epoch};
    texts->pairs[1] = (tt_metadata){SAMPLER_SEED, texts->seed};
    texts->count = TT__PROGRESS_PAIRS;
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
    return TT_OK;
}
