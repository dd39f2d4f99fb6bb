/* Scalars as comma-separated values, RFC 4180. */
#ifndef TT_METRICS_SCALAR_CSV_H
#define TT_METRICS_SCALAR_CSV_H

#include "base/bytes.h"
#include "metrics/scalar_log.h"

/* Replace what is in `line` by the names of the columns / by a scalar's line. */
void tt__csv_encode_header(tt__bytes *line);
void tt__csv_encode_scalar(tt__bytes *line, double wall_time, int64_t step, const char *tag, double value);

/* Add the scalars of a file's bytes to `log`. The first line names the columns. With "tag" and "value" each line is a
 * scalar, at its "step" and "wall_time". Without, the column "step", "epoch" or "iteration", else the number of the
 * line, is the step, and every other column a series of its own; empty cells and those without a number are passed
 * over. `name` stands for the path in texts. A last line without its end is left out, and noted. Errors: TT_ERR_FORMAT
 * no such columns, a line with another number of cells or with no number where one must stand, with its line number;
 * TT_ERR_MEMORY. */
tt_status tt__csv_decode(tt__scalar_log *log, const void *data, size_t size, const char *name);

#endif
