/* Where the workers' output goes besides the launcher's own streams, in torchrun's layout:
 *
 *   DIR/ID_random/attempt_0/3/stdout.log, stderr.log, error.json     of local rank 3
 *   DIR/ID_random/attempt_0/filtered_stdout.log, filtered_stderr.log
 *
 * A worker opens its files itself, so that nothing of what it writes depends on the launcher; it also makes the folders
 * of its attempt where they are missing. */
#ifndef TT_LAUNCH_LOCAL_LOGS_H
#define TT_LAUNCH_LOCAL_LOGS_H

#include <tutti/base.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TT__STDOUT = 1, TT__STDERR = 2 };

typedef struct tt__logs {
    char *dir;          /* of this run; NULL: nothing is written */
    uid_t owner;        /* of that folder */
    uint8_t *files;     /* (workers) which streams go to a file: TT__STDOUT | TT__STDERR */
    uint8_t *tee;       /* (workers) which of these files the launcher also shows */
    bool *hidden;       /* (workers) the launcher shows none of its output */
    const char *prefix; /* of a line that is shown: "${role_name}", "${local_rank}", "${rank}", "${hostname}" */
    char **filters[2];  /* of stdout and stderr: lines shown that contain one are kept in a file of their own. Ends
                            with NULL; NULL: none */
} tt__logs;

/* Make the folder of this run in `base` (NULL: in a new one, where temporary files go), and those above it. Errors:
 * TT_ERR_IO, TT_ERR_MEMORY. */
tt_status tt__logs_make(tt__logs *logs, const char *base, const char *run_id);

/* Write the path of a file of worker `i` (-1: of the attempt). Returns `path`. */
const char *tt__logs_path(const tt__logs *logs, int attempt, int i, const char *file, char path[PATH_MAX]);

/* "stdout.log" */
const char *tt__logs_file(int std);

/* Make the folder of worker `i`. Returns whether it is there; else errno says why it isn't. */
bool tt__logs_make_folder(const tt__logs *logs, int attempt, int i);

/* Open a file of worker `i` (-1: of the attempt) for appending, and its folder. -1: errno says why. */
int tt__logs_append(const tt__logs *logs, int attempt, int i, const char *file);

/* Open a file of worker `i` for reading, without waiting. -1: errno says why; it is not made. */
int tt__logs_open(const tt__logs *logs, int attempt, int i, const char *file);

/* Remove a file of worker `i`, if it is there. */
void tt__logs_remove(const tt__logs *logs, int attempt, int i, const char *file);

#endif
