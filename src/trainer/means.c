#include "trainer/means.h"

#include "base/error.h"
#include "base/hash.h"
#include "comm/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "loss" is before all others. */
static int compare_names(const char *a, const char *b) {
    int a_first = !strcmp(a, "loss"), b_first = !strcmp(b, "loss");
    return a_first != b_first ? b_first - a_first : strcmp(a, b);
}

static size_t mean_place(const tt__means *means, const char *name) {
    size_t place = 0;
    while (place < means->count && compare_names(means->of[place].name, name) < 0)
        place++;
    return place;
}

static bool mean_is_at(const tt__means *means, size_t place, const char *name) {
    return place < means->count && !strcmp(means->of[place].name, name);
}

static tt_status insert_mean(tt__means *means, size_t place, const char *name) {
    if (means->count == means->capacity) {
        size_t more = means->capacity ? 2 * means->capacity : 8;
        tt__mean *of = realloc(means->of, more * sizeof *of);
        if (!of)
            return tt__fail(TT_ERR_MEMORY, "no memory for the metric \"%s\"", name);
        means->of = of;
        means->capacity = more;
    }
    char *copy = strdup(name);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "no memory for the metric \"%s\"", name);
    memmove(&means->of[place + 1], &means->of[place], (means->count - place) * sizeof *means->of);
    means->of[place] = (tt__mean){.name = copy};
    means->count++;
    return TT_OK;
}

/* Knuth's two-sum. */
static void add_to_mean(tt__mean *mean, double sum, double rest, double count) {
    double total = mean->sum + sum, added = total - mean->sum;
    double lost = (mean->sum - (total - added)) + (sum - added);
    mean->sum = total;
    mean->rest = isfinite(total) ? mean->rest + rest + lost : 0;
    mean->count += count;
}

static double value_of_mean(const tt__mean *mean) { return (mean->sum + mean->rest) / mean->count; }

tt_status tt__means_add(tt__means *means, const char *name, double value, double examples) {
    size_t place = mean_place(means, name);
    if (!mean_is_at(means, place, name))
        TT__TRY(insert_mean(means, place, name));
    if (examples > 0) /* the mean of no examples may be NaN, which would stay in the sum */
        add_to_mean(&means->of[place], value * examples, 0, examples);
    return TT_OK;
}

/* ---- all ranks ---- */

/* Join all names, each ended by a NUL, in allocated memory; *size: their bytes. NULL: no memory. */
static char *join_names(const tt__means *means, size_t *size) {
    *size = 0;
    for (size_t i = 0; i < means->count; i++)
        *size += strlen(means->of[i].name) + 1;
    char *text = malloc(*size + 1);
    for (size_t i = 0, at = 0; text && i < means->count; i++) {
        size_t bytes = strlen(means->of[i].name) + 1;
        memcpy(text + at, means->of[i].name, bytes);
        at += bytes;
    }
    return text;
}

/* Errors name this as the place of its calls. */
static const char site[] = "the trainer's means";

int64_t tt__means_hash(const char *text, size_t size) { return (int64_t)(tt__fnv_bytes(TT__FNV, text, size) >> 2); }

/* Have all ranks the same text? */
static tt_status names_agree(tt_group *group, const char *text, size_t size, bool *agree) {
    int64_t hash = tt__means_hash(text, size), most[] = {(int64_t)size, -(int64_t)size, hash, -hash};
    tt_status status = tt__group_most(group, most, 4, TT_I64, site);
    *agree = !status && most[0] == -most[1] && most[2] == -most[3];
    return status;
}

static tt_status add_names(tt__means *means, const char *text, int64_t size) {
    for (int64_t at = 0; at < size; at += (int64_t)strlen(text + at) + 1)
        TT__TRY(tt__means_add(means, text + at, 0, 0));
    return TT_OK;
}

/* Add the names that other ranks have. */
static tt_status gather_names(tt__means *means, tt_group *group, const char *text, const int64_t *sizes,
                              int64_t widest) {
    const size_t world = (size_t)tt_get_world_size(group), width = (size_t)widest;
    char *own = calloc(world + 1, width), *texts = own ? own + width : NULL;
    if (!own)
        return tt__fail(TT_ERR_MEMORY, "no memory for the ranks' metrics");
    memcpy(own, text, (size_t)sizes[tt_get_rank(group)]);
    tt_status status = tt__group_gather(group, own, texts, width, TT_U8, site);
    for (size_t r = 0; r < world && !status; r++)
        status = add_names(means, texts + r * width, sizes[r]);
    free(own);
    return status;
}

static tt_status exchange_names(tt__means *means, tt_group *group, const char *text, size_t size) {
    const int world = tt_get_world_size(group);
    int64_t own = (int64_t)size, widest = 1, *sizes = malloc((size_t)world * sizeof *sizes);
    if (!sizes)
        return tt__fail(TT_ERR_MEMORY, "no memory for the ranks' metrics");
    tt_status status = tt__group_gather(group, &own, sizes, 1, TT_I64, site);
    for (int r = 0; r < world && !status; r++)
        widest = sizes[r] > widest ? sizes[r] : widest;
    if (!status)
        status = gather_names(means, group, text, sizes, widest);
    free(sizes);
    return status;
}

static tt_status unite_names(tt__means *means, tt_group *group) {
    size_t size;
    bool agree;
    char *text = join_names(means, &size);
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "no memory for the names of metrics");
    tt_status status = names_agree(group, text, size, &agree);
    if (!status && !agree)
        status = exchange_names(means, group, text, size);
    free(text);
    return status;
}

tt_status tt__means_reduce(tt__means *means, tt_group *group) {
    if (!group || tt_get_world_size(group) == 1)
        return TT_OK;
    TT__TRY(unite_names(means, group));
    size_t world = (size_t)tt_get_world_size(group), each = 3 * means->count;
    double *own = malloc((each * (world + 1) + 1) * sizeof *own), *all = own ? own + each : NULL;
    if (!own)
        return tt__fail(TT_ERR_MEMORY, "no memory for the sums of metrics");
    for (size_t i = 0; i < means->count; i++)
        memcpy(own + 3 * i, (const double[]){means->of[i].sum, means->of[i].rest, means->of[i].count}, 3 * sizeof *own);
    tt_status status = tt__group_gather(group, own, all, each, TT_F64, site);
    if (!status)
        tt__means_clear(means);
    for (size_t r = 0; r < world && !status; r++, all += each)
        for (size_t i = 0; i < means->count; i++)
            add_to_mean(&means->of[i], all[3 * i], all[3 * i + 1], all[3 * i + 2]);
    free(own);
    return status;
}

/* ---- reading ---- */

const tt_trainer_metric *tt__means_view(tt__means *means, int64_t *count) {
    *count = 0;
    if (!means->view || means->view_capacity < means->count) {
        tt_trainer_metric *view = realloc(means->view, (means->count + 1) * sizeof *view);
        if (!view)
            return tt__fail_null(TT_ERR_MEMORY, "no memory for the list of metrics");
        means->view = view;
        means->view_capacity = means->count;
    }
    for (size_t i = 0; i < means->count; i++)
        if (means->of[i].count > 0)
            means->view[(*count)++] = (tt_trainer_metric){means->of[i].name, value_of_mean(&means->of[i])};
    return means->view;
}

double tt__means_value(const tt__means *means, const char *name) {
    size_t place = mean_place(means, name);
    bool found = mean_is_at(means, place, name) && means->of[place].count > 0;
    return found ? value_of_mean(&means->of[place]) : NAN;
}

double tt__means_examples(const tt__means *means, const char *name) {
    size_t place = mean_place(means, name);
    return mean_is_at(means, place, name) ? means->of[place].count : 0;
}

void tt__means_clear(tt__means *means) {
    for (size_t i = 0; i < means->count; i++)
        means->of[i].sum = means->of[i].rest = means->of[i].count = 0;
}

void tt__means_free(tt__means *means) {
    for (size_t i = 0; i < means->count; i++)
        free(means->of[i].name);
    free(means->of);
    free(means->view);
    *means = (tt__means){0};
}
