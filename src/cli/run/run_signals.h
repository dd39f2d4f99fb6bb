/* --signals-to-handle. */
#ifndef TT_CLI_RUN_SIGNALS_H
#define TT_CLI_RUN_SIGNALS_H

#include "cli/run/run_flags.h"
#include "elastic/job.h"

/* Set job->signals and signal_names, which point into `flags`, the environment or constants. Errors: TT_ERR_INVALID. */
tt_status tt__run_signals_read(tt__job *job, const tt__run_flags *flags);

#endif
