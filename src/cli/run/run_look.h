/* What `tutti run` shows of a running job: long waits, and how far the training is. */
#ifndef TT_CLI_RUN_LOOK_H
#define TT_CLI_RUN_LOOK_H

#include "launch/job.h"

/* Set up job->look(): a line for each wait that takes longer than notice_ms (0: none); where stderr is a terminal and
 * stdout is not, a line that follows the training. TT_ERR_MEMORY. */
tt_status tt__run_look_begin(tt__job *job, int64_t notice_ms);
void tt__run_look_end(tt__job *job);

#endif
