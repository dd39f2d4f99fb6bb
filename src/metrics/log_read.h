/* The scalars of a run: of a file, or of all files in its folder. */
#ifndef TT_METRICS_LOG_READ_H
#define TT_METRICS_LOG_READ_H

#include "metrics/scalar_log.h"

/* Is this the name of an event file, "...tfevents..."? */
bool tt__log_is_event_name(const char *name);

/* Read an event file or a CSV file, which its content tells. *log is freed by the caller, also on failure.
 * Errors, with the path: TT_ERR_IO; TT_ERR_FORMAT it is neither; TT_ERR_UNSUPPORTED another program wrote the event
 * file; TT_ERR_MEMORY. */
tt_status tt__log_read_file(tt__scalar_log *log, const char *path);

/* Read a run's folder: its event files in the order of their names, which is that of their making; where there are
 * none, its CSV files. Folders inside are other runs and left alone. TT_ERR_NOT_FOUND: there is neither. */
tt_status tt__log_read_folder(tt__scalar_log *log, const char *path);

#endif
