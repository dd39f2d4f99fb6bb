/* The scalars that a run logged: a series of points for each tag, read from files and written as CSV. */
#ifndef TT_METRICS_SCALAR_LOG_H
#define TT_METRICS_SCALAR_LOG_H

#include "base/bytes.h"
#include "base/hash.h"

#include <tutti/base.h>

typedef struct tt__scalar_point {
    int64_t step;
    double wall_time; /* seconds since 1970; NAN: not known */
    double value;
} tt__scalar_point;

typedef struct tt__series {
    char *tag;
    tt__scalar_point *points; /* by rising step */
    size_t count, capacity;
    uint64_t purged; /* how many of the log's purges it has had */
} tt__series;

/* A purge that some series may not have had yet. */
typedef struct tt__log_purge {
    uint64_t number; /* from 0 on */
    int64_t step;
} tt__log_purge;

/* Zeroed = empty. */
typedef struct tt__scalar_log {
    tt__series *series; /* in the order of their first points */
    size_t count, capacity;
    tt__name_map places;   /* by tag */
    tt__log_purge *purges; /* by rising step and number: a purge replaces earlier ones of the same or a later step */
    size_t purge_count, purge_capacity;
    uint64_t purges_made;
    char note[512]; /* which part of the files was left out, and why; "": nothing */
} tt__scalar_log;

/* Add a point. A run that went on from an earlier checkpoint has steps twice: a later point replaces earlier ones of
 * its step and of later steps. TT_ERR_MEMORY. */
tt_status tt__scalar_log_add(tt__scalar_log *log, const char *tag, size_t tag_size, tt__scalar_point point);

/* Drop all points so far of `step` and later steps; tt__scalar_log_settle() completes that in one pass, since a hostile
 * file may have as many purges as series. TT_ERR_MEMORY. */
tt_status tt__scalar_log_purge(tt__scalar_log *log, int64_t step);
void tt__scalar_log_settle(tt__scalar_log *log);

/* The series of a tag, or NULL. */
const tt__series *tt__scalar_log_find(const tt__scalar_log *log, const char *tag);

/* Note what was left out; a first note stays. */
void tt__scalar_log_note(tt__scalar_log *log, const char *format, ...) TT_PRINTF(2, 3);

void tt__scalar_log_free(tt__scalar_log *log);

/* ---- the files of a run (log_read.c) ---- */

/* Is this the name of an event file, "...tfevents..."? */
bool tt__log_is_event_name(const char *name);

/* Read an event file or a CSV file; its content tells which. The caller frees *log, also on failure. Errors, with the
 * path: TT_ERR_IO; TT_ERR_FORMAT: neither of the two; TT_ERR_UNSUPPORTED: another program wrote the event file;
 * TT_ERR_MEMORY. */
tt_status tt__log_read_file(tt__scalar_log *log, const char *path);

/* Read a run's folder: its event files in the order of their names, which is that of their creation; if there are none,
 * its CSV files. Folders inside are other runs, and left alone. TT_ERR_NOT_FOUND: there is neither. */
tt_status tt__log_read_folder(tt__scalar_log *log, const char *path);

/* ---- comma-separated values, RFC 4180 ---- */

/* Replace what is in `line` by the names of the columns / by a scalar's line. */
void tt__csv_encode_header(tt__bytes *line);
void tt__csv_encode_scalar(tt__bytes *line, double wall_time, int64_t step, const char *tag, double value);

/* Add the scalars of a file's bytes to `log`. The first line names the columns. With "tag" and "value" each line is a
 * scalar, at its "step" and "wall_time". Without, the column "step", "epoch" or "iteration", else the number of the
 * line, is the step, "wall_time" or "wall time" the time, and every other column a series of its own; empty cells and
 * those without a number are passed over. `name` stands for the path in texts. A last line without its end is left out,
 * and noted. Errors: TT_ERR_FORMAT: no such columns, or (with its line number) a line that has another number of cells,
 * or no number where one must be; TT_ERR_MEMORY. */
tt_status tt__csv_decode(tt__scalar_log *log, const void *data, size_t size, const char *name);

#endif
