/* What `tutti run` sees of a worker that fails: its stacks, and its last calls. */
#ifndef TT_CLI_RUN_CRASH_H
#define TT_CLI_RUN_CRASH_H

#include "elastic/job.h"

/* Set up job->stacks() and job->last_calls(). */
void tt__run_crash_begin(tt__job *job);

#endif
