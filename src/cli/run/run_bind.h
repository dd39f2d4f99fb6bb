/* --bind and --numa-binding: where workers run. */
#ifndef TT_CLI_RUN_BIND_H
#define TT_CLI_RUN_BIND_H

#include "cli/run/run_flags.h"
#include "launch/job.h"

/* Divide the CPUs that this process may use among job->workers, as the flags say: job->cpus := *cpus, allocated; both
 * NULL if nothing is to be bound. Errors: TT_ERR_INVALID the flags; TT_ERR_UNSUPPORTED hwloc can't tell;
 * TT_ERR_MEMORY. */
tt_status tt__run_bind(tt__job *job, cpu_set_t **cpus, const tt__run_flags *flags);

/* Say on stderr who runs where. */
void tt__run_bind_tell(const tt__job *job);

#endif
