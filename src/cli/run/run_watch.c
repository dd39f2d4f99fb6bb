#include "cli/run/run_watch.h"

#include "cli/run/run_crash.h"
#include "cli/run/run_health.h"

tt_status tt__run_watch_check(const tt__run_flags *flags) { return tt__run_health_check(flags); }

tt_status tt__run_watch_begin(tt__job *job, const tt__run_flags *flags) {
    job->stacks = tt__run_stacks;
    job->last_calls = tt__run_last_calls;
    job->idle = tt__run_idle;
    return tt__run_health_listen(job, flags);
}
