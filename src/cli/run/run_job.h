/* A job from the flags of `tutti run`. */
#ifndef TT_CLI_RUN_JOB_H
#define TT_CLI_RUN_JOB_H

#include "cli/run/run_flags.h"
#include "cli/run/run_meeting.h"
#include "launch/job.h"

/* Fill *job by the flags and the environment, whose strings it then points into, and into *place. Sets TT_LOG and
 * TT_WIRE, which the ranks inherit. Blocks as tt__run_find_meeting_place(). Errors: TT_ERR_INVALID,
 * TT_ERR_UNSUPPORTED, TT_ERR_SYSTEM, TT_ERR_MEMORY. */
tt_status tt__run_job_make(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags);

/* Read TT_WAIT_NOTICE, which the ranks' log also uses, and check the other settings that ranks inherit. */
tt_status tt__run_read_notice(int64_t *ms, const tt__run_flags *flags);

#endif
