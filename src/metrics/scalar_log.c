#include "metrics/scalar_log.h"

#include "base/error.h"
#include "base/text/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Make room for one more item of `size` bytes in a list; NULL when memory is out, and the list stays. */
static void *log_list_grow(void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity)
        return items;
    size_t more = *capacity ? 2 * *capacity : 16;
    void *grown = more > SIZE_MAX / 2 / size ? NULL : realloc(items, more * size);
    *capacity = grown ? more : *capacity;
    return grown;
}

/* Take over `tag`; NULL: no memory, and it is freed. */
static tt__series *add_series(tt__scalar_log *log, char *tag) {
    tt__series *series = tag ? log_list_grow(log->series, log->count, &log->capacity, sizeof *series) : NULL;
    log->series = series ? series : log->series;
    if (!series || !tt__name_map_reserve(&log->places, log->count + 1)) {
        tt__fail(TT_ERR_MEMORY, "no memory for the series \"%.100s\"", tag ? tag : "");
        free(tag);
        return NULL;
    }
    tt__name_map_put(&log->places, tag, (int64_t)log->count);
    series[log->count] = (tt__series){.tag = tag, .purged = log->purges_made};
    return &series[log->count++];
}

/* Find the series of a tag, which need not end with '\0'; a new one if it has none. */
static tt__series *obtain_series(tt__scalar_log *log, const char *tag, size_t size) {
    char small[256];
    size_t n = strnlen(tag, size);
    bool fits = n < sizeof small;
    char *name = fits ? small : malloc(n + 1);
    if (!name)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for the series \"%.100s\"", "");
    memcpy(name, tag, n);
    name[n] = '\0';
    int64_t place = tt__name_map_get(&log->places, name, "");
    if (place < 0)
        return add_series(log, fits ? strdup(name) : name);
    if (!fits)
        free(name);
    return &log->series[place];
}

static void purge_series(tt__series *series, int64_t step) {
    while (series->count && series->points[series->count - 1].step >= step)
        series->count--;
}

/* Apply the purges that the series has not had: the first has the least step, so it is enough. */
static void settle_series(const tt__scalar_log *log, tt__series *series) {
    size_t low = 0, high = log->purge_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->purges[middle].number < series->purged)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < log->purge_count)
        purge_series(series, log->purges[low].step);
    series->purged = log->purges_made;
}

void tt__scalar_log_settle(tt__scalar_log *log) {
    for (size_t i = 0; log->purge_count && i < log->count; i++)
        settle_series(log, &log->series[i]);
    log->purge_count = 0;
}

tt_status tt__scalar_log_purge(tt__scalar_log *log, int64_t step) {
    while (log->purge_count && log->purges[log->purge_count - 1].step >= step)
        log->purge_count--;
    tt__log_purge *purges = log_list_grow(log->purges, log->purge_count, &log->purge_capacity, sizeof *purges);
    if (!purges)
        return tt__fail(TT_ERR_MEMORY, "no memory for the beginnings of runs");
    log->purges = purges;
    purges[log->purge_count++] = (tt__log_purge){log->purges_made++, step};
    return TT_OK;
}

tt_status tt__scalar_log_add(tt__scalar_log *log, const char *tag, size_t tag_size, tt__scalar_point point) {
    tt__series *series = obtain_series(log, tag, tag_size);
    if (!series)
        return tt_last_status();
    settle_series(log, series);
    purge_series(series, point.step);
    tt__scalar_point *points = log_list_grow(series->points, series->count, &series->capacity, sizeof *points);
    if (!points)
        return tt__fail(TT_ERR_MEMORY, "no memory for the points of \"%s\"", series->tag);
    series->points = points;
    series->points[series->count++] = point;
    return TT_OK;
}

const tt__series *tt__scalar_log_find(const tt__scalar_log *log, const char *tag) {
    int64_t place = tt__name_map_get(&log->places, tag, "");
    return place < 0 ? NULL : &log->series[place];
}

void tt__scalar_log_note(tt__scalar_log *log, const char *format, ...) {
    va_list values;
    if (*log->note)
        return;
    va_start(values, format);
    tt__vformat(log->note, sizeof log->note, format, values);
    va_end(values);
}

void tt__scalar_log_free(tt__scalar_log *log) {
    for (size_t i = 0; i < log->count; i++) {
        free(log->series[i].tag);
        free(log->series[i].points);
    }
    free(log->series);
    free(log->purges);
    tt__name_map_free(&log->places);
    *log = (tt__scalar_log){0};
}
