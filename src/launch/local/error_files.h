/* The workers' error reports (TORCHELASTIC_ERROR_FILE): files in a private directory, job->error_dir. The launcher
 * chooses its name; the keeper makes it, empties it before each attempt, and removes it. */
#ifndef TT_LAUNCH_LOCAL_ERROR_FILES_H
#define TT_LAUNCH_LOCAL_ERROR_FILES_H

#include "launch/job.h"
#include "launch/machine/failures.h"

tt_status tt__job_error_dir_name(tt__job *job);

/* Make the directory, in a process with one thread; returns 0 or errno. */
int tt__job_error_dir_make(tt__job *job);

/* Fail because the directory can't be made. */
tt_status tt__job_error_dir_failed(int errnum);

/* Remove the files; remove the directory with its files. Another directory of that name than the one that the keeper
 * made is left alone. */
void tt__job_error_dir_clear(const tt__job *job);
void tt__job_error_dir_remove(const tt__job *job);

/* Write the path of the error file of this node's worker `i`: "DIR/worker-3.json", or with job->logs torchrun's path
 * in the directory of logs. Returns `path`. */
const char *tt__job_error_file(const tt__job *job, int i, char path[PATH_MAX]);

/* Read this node's worker `i`'s error file into its message, traceback, error_s and secondary; remove the file. Both
 * look below the folders that this job made alone. */
void tt__job_error_file_read(const tt__job *job, int i, tt__worker *worker);
void tt__job_error_file_remove(const tt__job *job, int i);

/* Write what an error file says of a worker that failed as JSON in the same form, with "errorCode", which torchrun
 * adds. Without a message it is "<NONE>". The caller frees it; NULL: no memory, or the message is no UTF-8. */
char *tt__error_file_text(const tt__worker *worker);

/* Write this to the file `path`. Returns 0 or errno. */
int tt__error_file_hand_on(const char *path, const tt__worker *worker);

#endif
