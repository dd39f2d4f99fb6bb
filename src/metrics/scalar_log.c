#include "metrics/scalar_log.h"

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
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

/* ---- CSV: writing ---- */

static void csv_put(tt__bytes *line, const char *text) { tt__bytes_put(line, text, strlen(text)); }

static void csv_put_cell(tt__bytes *line, const char *text) {
    if (!strpbrk(text, ",\"")) {
        csv_put(line, text);
        return;
    }
    csv_put(line, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"')
            csv_put(line, "\"");
        tt__bytes_put(line, c, 1);
    }
    csv_put(line, "\"");
}

void tt__csv_encode_header(tt__bytes *line) {
    line->size = 0;
    line->failed = false;
    csv_put(line, "step,wall_time,tag,value\r\n");
}

void tt__csv_encode_scalar(tt__bytes *line, double wall_time, int64_t step, const char *tag, double value) {
    char text[512]; /* a double as %f may have 317 characters */
    line->size = 0;
    line->failed = false;
    snprintf(text, sizeof text, "%" PRId64 ",", step);
    csv_put(line, text);
    tt__format(text, sizeof text, "%.6f", wall_time);
    csv_put(line, text);
    csv_put(line, ",");
    csv_put_cell(line, tag);
    csv_put(line, ",");
    tt__format_shortest(text, sizeof text, 9, value);
    csv_put(line, text);
    csv_put(line, "\r\n");
}

/* ---- CSV: reading our own files, and tables with a column a series ---- */

/* A line's cells: texts in the reader's copy of the file. */
typedef struct csv_row {
    char **cells;
    size_t count, capacity;
} csv_row;

/* A column that may be missing. */
enum { NO_COLUMN = -1 };

typedef struct csv_reader {
    tt__scalar_log *log;
    const char *name;
    char *at, *end;         /* what has not been read yet */
    size_t line, next_line; /* numbers of the row's first line and of the one behind it */
    csv_row header, row;
    ptrdiff_t step, wall_time, tag, value; /* columns */
    int64_t rows;
} csv_reader;

static tt_status csv_memory(const csv_reader *r) {
    return tt__fail(TT_ERR_MEMORY, "%s: no memory to read it", r->name);
}

/* ---- CSV: rows ---- */

static tt_status csv_row_add(const csv_reader *r, csv_row *row, char *cell) {
    if (row->count == row->capacity) {
        size_t more = row->capacity ? 2 * row->capacity : 16;
        char **cells = realloc(row->cells, more * sizeof *cells);
        if (!cells)
            return csv_memory(r);
        row->cells = cells;
        row->capacity = more;
    }
    row->cells[row->count++] = cell;
    return TT_OK;
}

/* Take the cell that begins at r->at: remove its quotes, end it by 0, and move r->at behind it. Returns the comma or
 * line end behind the cell; 0: there was none. */
static char csv_take_cell(csv_reader *r) {
    char *out = r->at, ended_by = 0;
    bool quoted = false;
    for (; r->at < r->end && !ended_by; r->at++) {
        char c = *r->at;
        bool last = r->at + 1 == r->end;
        r->next_line += c == '\n';
        if (c == '"' && quoted && !last && r->at[1] == '"')
            *out++ = *r->at++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == ',' || c == '\n'))
            ended_by = c;
        else if (quoted || c != '\r' || last || r->at[1] != '\n')
            *out++ = c;
    }
    *out = 0;
    return ended_by;
}

/* Take the next line into `row`. *more false: there is none, or it has no line end. */
static tt_status csv_take_row(csv_reader *r, csv_row *row, bool *more) {
    char ended_by = ',';
    row->count = 0;
    r->line = r->next_line;
    *more = r->at < r->end;
    while (*more && ended_by == ',') {
        TT__TRY(csv_row_add(r, row, r->at));
        ended_by = csv_take_cell(r);
    }
    *more = *more && ended_by;
    if (!*more && row->count)
        tt__scalar_log_note(r->log, "%s: line %zu has no end and is left out", r->name, r->line);
    return TT_OK;
}

/* ---- CSV: columns ---- */

static ptrdiff_t find_column(const csv_row *header, const char *name) {
    for (size_t i = 0; i < header->count; i++)
        if (tt__equal_ignoring_case(header->cells[i], name))
            return (ptrdiff_t)i;
    return NO_COLUMN;
}

static tt_status csv_read_header(csv_reader *r) {
    static const char *const steps[] = {"step", "epoch", "iteration"};
    bool more;
    TT__TRY(csv_take_row(r, &r->header, &more));
    if (!more)
        return tt__fail(TT_ERR_FORMAT, "%s: expected a first line with the names of columns, got none", r->name);
    r->step = NO_COLUMN;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && r->step == NO_COLUMN; i++)
        r->step = find_column(&r->header, steps[i]);
    r->wall_time = find_column(&r->header, "wall_time");
    if (r->wall_time == NO_COLUMN)
        r->wall_time = find_column(&r->header, "wall time"); /* as TensorBoard exports it */
    r->tag = find_column(&r->header, "tag");
    r->value = find_column(&r->header, "value");
    if (r->tag == NO_COLUMN || r->value == NO_COLUMN)
        r->tag = r->value = NO_COLUMN;
    return TT_OK;
}

/* ---- CSV: scalars ---- */

/* Read a step: a whole number, which tables may write as a real one ("3.0"). */
static bool csv_step(const char *text, int64_t *step) {
    double x;
    char *end;
    errno = 0;
    *step = strtoll(text, &end, 10);
    if (*text && !*end && !errno)
        return true;
    if (!tt__read_f64(text, &x) || !(fabs(x) < 0x1p53) || x != floor(x))
        return false;
    *step = (int64_t)x;
    return true;
}

static tt_status csv_bad_cell(const csv_reader *r, ptrdiff_t column, const char *expected) {
    return tt__fail(TT_ERR_FORMAT, "%s: line %zu: expected %s as \"%s\", got \"%s\"", r->name, r->line, expected,
                    tt__make_printable(r->header.cells[column]).text, tt__make_printable(r->row.cells[column]).text);
}

static tt_status add_columns(const csv_reader *r, tt__scalar_point point) {
    for (size_t i = 0; i < r->row.count; i++) {
        const char *tag = r->header.cells[i];
        bool special = (ptrdiff_t)i == r->step || (ptrdiff_t)i == r->wall_time;
        if (!special && *tag && tt__read_f64(r->row.cells[i], &point.value))
            TT__TRY(tt__scalar_log_add(r->log, tag, strlen(tag), point));
    }
    return TT_OK;
}

static tt_status add_row(csv_reader *r) {
    const csv_row *row = &r->row;
    tt__scalar_point point = {.step = r->rows++, .wall_time = NAN};
    if (row->count != r->header.count)
        return tt__fail(TT_ERR_FORMAT, "%s: line %zu: expected %zu cells as in the first line, got %zu", r->name,
                        r->line, r->header.count, row->count);
    if (r->step != NO_COLUMN && !csv_step(row->cells[r->step], &point.step))
        return csv_bad_cell(r, r->step, "a whole number");
    if (r->wall_time != NO_COLUMN && !tt__read_f64(row->cells[r->wall_time], &point.wall_time))
        return csv_bad_cell(r, r->wall_time, "seconds");
    if (r->tag == NO_COLUMN)
        return add_columns(r, point);
    if (!tt__read_f64(row->cells[r->value], &point.value))
        return csv_bad_cell(r, r->value, "a number");
    const char *tag = row->cells[r->tag];
    return *tag ? tt__scalar_log_add(r->log, tag, strlen(tag), point) : csv_bad_cell(r, r->tag, "a name");
}

static tt_status read_rows(csv_reader *r) {
    for (bool more = true; more;) {
        TT__TRY(csv_take_row(r, &r->row, &more));
        bool is_empty = r->row.count == 1 && !*r->row.cells[0];
        if (more && !is_empty)
            TT__TRY(add_row(r));
    }
    return TT_OK;
}

tt_status tt__csv_decode(tt__scalar_log *log, const void *data, size_t size, const char *name) {
    if (memchr(data, 0, size))
        return tt__fail(TT_ERR_FORMAT, "%s: expected comma-separated values, got a zero byte", name);
    char *copy = malloc(size + 1);
    csv_reader r = {.log = log, .name = name, .at = copy, .end = copy + size, .next_line = 1};
    if (!copy)
        return csv_memory(&r);
    memcpy(copy, data, size);
    tt_status status = csv_read_header(&r);
    if (!status)
        status = read_rows(&r);
    free(r.header.cells);
    free(r.row.cells);
    free(copy);
    return status;
}
