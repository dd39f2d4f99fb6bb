/* A file that grows by whole records: each is one write, and the rest of a failed write is cut off again. */
#ifndef TT_METRICS_APPEND_FILE_H
#define TT_METRICS_APPEND_FILE_H

#include <tutti/base.h>

/* Zeroed: not open, fd 0. */
typedef struct tt__append_file {
    char *path; /* NULL: not open */
    int fd;
    bool failing; /* the last append failed, and the error was returned */
} tt__append_file;

/* Make the file `path`, which must be new, for appending. Errors: TT_ERR_IO with the path (*taken: the name exists
 * already), TT_ERR_MEMORY. */
tt_status tt__append_create(tt__append_file *file, const char *path, bool *taken);

/* Open `path` for appending, and make it if it is missing. Links are followed, and files refused, as
 * base/files/planted.h says. Errors, with the path: TT_ERR_IO; TT_ERR_INVALID: a FIFO or the like; TT_ERR_MEMORY. */
tt_status tt__append_open(tt__append_file *file, const char *path);

/* Cut off what follows the last line end. *empty: nothing is left. */
tt_status tt__append_cut_unfinished_line(tt__append_file *file, bool *empty);

/* Cut off the last lines that all begin with a number of at least `number`. */
tt_status tt__append_cut_from(tt__append_file *file, int64_t number);

/* Append a record. After a failure it is dropped: TT_ERR_IO for the first of several failures in a row, TT_OK for the
 * others. */
tt_status tt__append(tt__append_file *file, const void *record, size_t size);

/* Wait for the disk. */
tt_status tt__append_sync(const tt__append_file *file);

void tt__append_close(tt__append_file *file);

#endif
