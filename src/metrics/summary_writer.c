/* The writer of a run's log: an event file, and a CSV file of the scalars. */
#include "base/args.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/files/planted.h"
#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "base/text/plain_text.h"
#include "metrics/append_file.h"
#include "metrics/event_file.h"
#include "metrics/scalar_log.h"

#include <tutti/metrics.h>

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- histograms ---- */

enum { EDGES = TT__HISTOGRAM_EDGES, HALF = EDGES / 2 };

/* Make all limits, ascending, by PyTorch's multiplications, so that they have the same bits. */
static void make_limits(double *limit) {
    double v = 1e-12;
    limit[HALF] = 0;
    for (int i = 1; i <= HALF; i++, v *= 1.1) {
        limit[HALF + i] = v;
        limit[HALF - i] = -v;
    }
}

/* The last limit that isn't above x; -1: all are. */
static int limit_below(const double *limit, double x) {
    int below = 0, above = EDGES;
    while (below < above) {
        int middle = (below + above) / 2;
        if (limit[middle] <= x)
            below = middle + 1;
        else
            above = middle;
    }
    return below - 1;
}

static double value_at(const void *values, int64_t i, tt_dtype dtype) {
    return dtype == TT_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static void count_value(tt__histogram *h, double x) {
    int at = limit_below(h->limit, x);
    at -= at == EDGES - 1 && x == h->limit[EDGES - 1]; /* the last bucket includes its upper limit */
    if (at >= 0 && at < EDGES - 1)
        h->count[at]++;
    h->min = h->num == 0 || x < h->min ? x : h->min;
    h->max = h->num == 0 || x > h->max ? x : h->max;
    h->num++;
    h->sum += x;
    h->sum_squares += x * x;
}

/* Before, count[i] has the values from limit[i] on. Move each count to its upper limit, and cut off empty buckets at
 * both ends. */
static void cut_histogram(tt__histogram *h) {
    size_t first = 0, last = EDGES - 2;
    while (first < last && h->count[first] == 0)
        first++;
    while (last > first && h->count[last] == 0)
        last--;
    h->size = last - first + 2;
    memmove(h->limit, h->limit + first, h->size * sizeof *h->limit);
    memmove(h->count + 1, h->count + first, (h->size - 1) * sizeof *h->count);
    h->count[0] = 0;
}

/* Count f32 or f64 values. TT_ERR_NAN: one that is NaN or infinite, with its number. */
static tt_status histogram_fill(tt__histogram *h, const char *who, const void *values, int64_t count, tt_dtype dtype) {
    *h = (tt__histogram){.num = 0};
    make_limits(h->limit);
    for (int64_t i = 0; i < count; i++) {
        double x = value_at(values, i, dtype);
        if (!isfinite(x))
            return tt__fail(TT_ERR_NAN, "%s: expected finite values, got %g as number %" PRId64, who, x, i);
        count_value(h, x);
    }
    cut_histogram(h);
    return TT_OK;
}

struct tt_summary_writer {
    char *log_dir;
    tt__append_file events, csv;
    tt__bytes record; /* what is written next */
};

static double wall_time(void) { return (double)tt__realtime_ns() * 1e-9; }

/* ---- making ---- */

/* The host's name, fit for a file's name. */
static void host_name(char *name, size_t size) {
    tt__host_name(name, size);
    for (char *c = strchr(name, '/'); c; c = strchr(c, '/'))
        *c = '-';
}

static char *events_path(const char *log_dir) {
    static atomic_uint made;
    char host[256], *path;
    host_name(host, sizeof host);
    int n = asprintf(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%u", log_dir, (long long)wall_time(), host,
                     (long)getpid(), atomic_fetch_add(&made, 1));
    return n < 0 ? NULL : path;
}

static tt_status writer_append(tt_summary_writer *w, tt__append_file *file) {
    if (w->record.failed)
        return tt__fail(TT_ERR_MEMORY, "no memory for a record of %s", file->path);
    return tt__append(file, w->record.data, w->record.size);
}

static tt_status open_events(tt_summary_writer *w) {
    tt_status status;
    bool taken;
    do { /* its name can be guessed, so a file that has it already is not ours */
        char *path = events_path(w->log_dir);
        if (!path)
            return tt__fail(TT_ERR_MEMORY, "tt_summary_writer_new: no memory");
        status = tt__append_create(&w->events, path, &taken);
        free(path);
    } while (taken);
    TT__TRY(status);
    tt__event_encode_version(&w->record, wall_time());
    return writer_append(w, &w->events);
}

static tt_status open_csv(tt_summary_writer *w) {
    char *path;
    bool empty;
    if (asprintf(&path, "%s/scalars.csv", w->log_dir) < 0)
        return tt__fail(TT_ERR_MEMORY, "tt_summary_writer_new: no memory");
    tt_status status = tt__append_open(&w->csv, path);
    free(path);
    TT__TRY(status);
    TT__TRY(tt__append_cut_unfinished_line(&w->csv, &empty));
    tt__csv_encode_header(&w->record);
    return empty ? writer_append(w, &w->csv) : TT_OK;
}

static tt_status open_files(tt_summary_writer *w, const tt_summary_writer_new_args *a) {
    w->log_dir = strdup(a->log_dir);
    if (!w->log_dir)
        return tt__fail(TT_ERR_MEMORY, "tt_summary_writer_new: no memory");
    if (tt__make_folders(a->log_dir))
        return tt__fail_prefix("tt_summary_writer_new");
    if (!a->no_events)
        TT__TRY(open_events(w));
    return a->no_csv ? TT_OK : open_csv(w);
}

tt_summary_writer *tt_summary_writer_new_with(const tt_summary_writer_new_args *args, size_t size) {
    tt_summary_writer_new_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.log_dir || !*a.log_dir)
        return tt__fail_null(TT_ERR_INVALID, "tt_summary_writer_new: expected the name of a folder, got none");
    if (a.no_events && a.no_csv)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_summary_writer_new: expected an event file or CSV, got .no_events and .no_csv");
    tt_summary_writer *w = calloc(1, sizeof *w);
    if (!w)
        return tt__fail_null(TT_ERR_MEMORY, "tt_summary_writer_new: no memory");
    if (!open_files(w, &a))
        return w;
    tt_summary_writer_free(w);
    return NULL;
}

/* ---- writing ---- */

static bool has_control(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            return true;
    return false;
}

static tt_status check_add(const char *who, const tt_summary_writer *w, const char *tag, int64_t step) {
    if (!w)
        return tt__fail_argument("%s: expected a writer, got NULL", who);
    if (!tag || !*tag || has_control(tag) || !tt__is_utf8(tag))
        return tt__fail(TT_ERR_INVALID, "%s: expected a tag of UTF-8 without control characters, got %s%.100s%s", who,
                        tag ? "\"" : "", tag ? tag : "NULL", tag ? "\"" : "");
    if (step < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a step of at least 0 for \"%s\", got %lld", who, tag,
                        (long long)step);
    return TT_OK;
}

tt_status tt_summary_writer_add_scalar(tt_summary_writer *writer, const char *tag, double value, int64_t step) {
    TT__TRY(check_add("tt_summary_writer_add_scalar", writer, tag, step));
    double now = wall_time();
    tt_status status = TT_OK;
    if (writer->events.path) {
        tt__event_encode_scalar(&writer->record, now, step, tag, value);
        status = writer_append(writer, &writer->events);
    }
    if (writer->csv.path) {
        tt__csv_encode_scalar(&writer->record, now, step, tag, value);
        tt_status second = writer_append(writer, &writer->csv);
        status = status ? status : second;
    }
    return status;
}

tt_status tt_summary_writer_add_text(tt_summary_writer *writer, const char *tag, const char *text, int64_t step) {
    TT__TRY(check_add("tt_summary_writer_add_text", writer, tag, step));
    if (!text || !tt__is_utf8(text))
        return tt__fail(TT_ERR_INVALID, "tt_summary_writer_add_text: expected a text of UTF-8 for \"%s\", got %s", tag,
                        text ? "other bytes" : "NULL");
    if (!writer->events.path)
        return TT_OK;
    tt__event_encode_text(&writer->record, wall_time(), step, tag, text);
    return writer_append(writer, &writer->events);
}

static tt_status check_values(const char *who, const char *tag, const void *values, int64_t count, tt_dtype dtype) {
    if (dtype != TT_F32 && dtype != TT_F64)
        return tt__fail(TT_ERR_DTYPE, "%s: expected f32 or f64 for \"%s\", got %s", who, tag, tt_dtype_name(dtype));
    if (!values || count < 1 || count > PTRDIFF_MAX / 8)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least 1 value for \"%s\", got %s%lld", who, tag,
                        values ? "" : "NULL and ", (long long)count);
    return TT_OK;
}

tt_status(tt_summary_writer_add_histogram)(tt_summary_writer *writer, const char *tag, const void *values,
                                           int64_t count, tt_dtype dtype, int64_t step) {
    static const char who[] = "tt_summary_writer_add_histogram";
    TT__TRY(check_add(who, writer, tag, step));
    TT__TRY(check_values(who, tag, values, count, dtype));
    if (!writer->events.path)
        return TT_OK;
    tt__histogram *h = malloc(sizeof *h);
    if (!h)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the histogram of \"%s\"", who, tag);
    tt_status status = histogram_fill(h, who, values, count, dtype);
    if (!status) {
        tt__event_encode_histogram(&writer->record, wall_time(), step, tag, h);
        status = writer_append(writer, &writer->events);
    }
    free(h);
    return status;
}

tt_status tt_summary_writer_purge(tt_summary_writer *writer, int64_t step) {
    if (!writer)
        return tt__fail_argument("tt_summary_writer_purge: expected a writer, got NULL");
    if (step < 0)
        return tt__fail(TT_ERR_INVALID, "tt_summary_writer_purge: expected a step of at least 0, got %lld",
                        (long long)step);
    tt_status status = TT_OK;
    if (writer->events.path) {
        tt__event_encode_restart(&writer->record, wall_time(), step);
        status = writer_append(writer, &writer->events);
    }
    tt_status second = writer->csv.path ? tt__append_cut_from(&writer->csv, step) : TT_OK;
    return status ? status : second;
}

tt_status tt_summary_writer_flush(tt_summary_writer *writer) {
    if (!writer)
        return tt__fail_argument("tt_summary_writer_flush: expected a writer, got NULL");
    tt_status events = tt__append_sync(&writer->events), csv = tt__append_sync(&writer->csv);
    return events ? events : csv;
}

const char *tt_summary_writer_log_dir(const tt_summary_writer *writer) { return writer ? writer->log_dir : ""; }

void tt_summary_writer_free(tt_summary_writer *writer) {
    if (!writer)
        return;
    tt__append_close(&writer->events);
    tt__append_close(&writer->csv);
    tt__bytes_free(&writer->record);
    free(writer->log_dir);
    free(writer);
}
