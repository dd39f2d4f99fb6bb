/* What `tutti run` sees of a worker that fails: its stacks, and its last calls. */
#ifndef TT_CLI_RUN_CRASH_H
#define TT_CLI_RUN_CRASH_H

#include "elastic/job.h"

/* job->stacks(), job->last_calls() and job->idle(). */
void tt__run_stacks(pid_t pid, pid_t thread, uint64_t pc, FILE *out);
void tt__run_last_calls(tt__snapshot *snapshot, FILE *out);
pid_t tt__run_idle(tt__snapshot *snapshot);

#endif
