/* Where the workers' output goes: --log-dir, --redirects, --tee and what filters it. */
#ifndef TT_CLI_RUN_LOGS_H
#define TT_CLI_RUN_LOGS_H

#include "cli/run/run_flags.h"
#include "launch/job.h"

/* Read the flags into *logs, for job->workers; job->logs := logs if they say anything. tt__run_logs_free() after it, in
 * any case. Errors: TT_ERR_INVALID, TT_ERR_MEMORY. */
tt_status tt__run_logs_read(tt__logs *logs, tt__job *job, const tt__run_flags *flags);

/* Make the directory, if files are wanted, and say where. */
tt_status tt__run_logs_make(tt__logs *logs, const tt__job *job, const tt__run_flags *flags);

void tt__run_logs_free(tt__logs *logs);

#endif
