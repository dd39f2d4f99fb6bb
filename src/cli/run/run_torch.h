/* `tutti run` as a node of a torchrun job: --rdzv-backend=c10d --rdzv-conf=protocol=torch. */
#ifndef TT_CLI_RUN_TORCH_H
#define TT_CLI_RUN_TORCH_H

#include "cli/run/run_flags.h"
#include "elastic/torch_job.h"

/* If that is what the flags ask for, read what concerns the other nodes into job->torch, which is made:
 * --nnodes=MIN:MAX, --rdzv-conf, --local-addr. Sets job->nodes to MAX. */
tt_status tt__run_torch_read(tt__job *job, const tt__run_flags *flags);

#endif
