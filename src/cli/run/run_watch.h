/* What `tutti run` does about workers that crash or hang, and who is told. */
#ifndef TT_CLI_RUN_WATCH_H
#define TT_CLI_RUN_WATCH_H

#include "cli/run/run_flags.h"
#include "launch/job.h"

/* Check the flags for it. TT_ERR_INVALID. */
tt_status tt__run_watch_check(const tt__run_flags *flags);

/* Set up job->stacks(), job->last_calls(), job->idle() and job->health. TT_ERR_SYSTEM: the port is taken. */
tt_status tt__run_watch_begin(tt__job *job, const tt__run_flags *flags);

#endif
