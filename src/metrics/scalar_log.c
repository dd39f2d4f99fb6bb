#include "metrics/scalar_log.h"

#include "base/error.h"
#include "base/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_tag(const char *tag, size_t size, const char *other) {
    int order = strncmp(tag, other, size);
    return order ? order : other[size] ? -1 : 0;
}

/* The first series whose tag is not before `tag`. */
static size_t series_place(const tt__scalar_log *log, const char *tag, size_t size) {
    size_t low = 0, high = log->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_tag(tag, size, log->series[middle].tag) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Make room for one more item of `size` bytes in a list; NULL when memory is out, and the list stays. */
static void *log_list_grow(void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity)
        return items;
    size_t more = *capacity ? 2 * *capacity : 16;
    void *grown = more > SIZE_MAX / 2 / size ? NULL : realloc(items, more * size);
    *capacity = grown ? more : *capacity;
    return grown;
}

static tt__series *insert_series(tt__scalar_log *log, size_t place, const char *tag, size_t size) {
    tt__series *series = log_list_grow(log->series, log->count, &log->capacity, sizeof *series);
    char *name = series ? strndup(tag, size) : NULL;
    log->series = series ? series : log->series;
    if (!name)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for the series \"%.*s\"", (int)(size < 100 ? size : 100), tag);
    memmove(&series[place + 1], &series[place], (log->count - place) * sizeof *series);
    series[place] = (tt__series){.tag = name};
    log->count++;
    return &series[place];
}

static void purge_series(tt__series *series, int64_t step) {
    while (series->count && series->points[series->count - 1].step >= step)
        series->count--;
}

void tt__scalar_log_purge(tt__scalar_log *log, int64_t step) {
    for (size_t i = 0; i < log->count; i++)
        purge_series(&log->series[i], step);
}

tt_status tt__scalar_log_add(tt__scalar_log *log, const char *tag, size_t tag_size, tt__scalar_point point) {
    size_t place = series_place(log, tag, tag_size);
    bool found = place < log->count && compare_tag(tag, tag_size, log->series[place].tag) == 0;
    tt__series *series = found ? &log->series[place] : insert_series(log, place, tag, tag_size);
    if (!series)
        return tt_last_status();
    purge_series(series, point.step);
    tt__scalar_point *points = log_list_grow(series->points, series->count, &series->capacity, sizeof *points);
    if (!points)
        return tt__fail(TT_ERR_MEMORY, "no memory for the points of \"%s\"", series->tag);
    series->points = points;
    series->points[series->count++] = point;
    return TT_OK;
}

const tt__series *tt__scalar_log_find(const tt__scalar_log *log, const char *tag) {
    size_t place = series_place(log, tag, strlen(tag));
    return place < log->count && !strcmp(log->series[place].tag, tag) ? &log->series[place] : NULL;
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
    *log = (tt__scalar_log){0};
}
