/* One pass of a rule over all parameters of a group, whatever their sizes, shared among threads. */
#ifndef TT_OPTIM_FUSED_H
#define TT_OPTIM_FUSED_H

#include "optim/optimizer.h"

/* Update n runs in the host's memory. Fails only where parameters are slices, if their measures can't be joined. */
tt_status tt__optim_fused(const tt_optimizer *optimizer, const tt__optim_group *group, tt__optim_run *runs, size_t n);

/* Update the rows that a run's gradient is of. */
void tt__optim_rows(const tt_optimizer *optimizer, const tt__optim_group *group, const tt__optim_run *run);

/* The same on another device than the host. `run->update.state` is set. */
tt_status tt__optim_rows_far(const char *who, const tt_optimizer *optimizer, const tt__optim_group *group,
                             tt__optim_run *run);

/* Does the rule take the gradient that parameter `i` has? Else TT_ERR_UNSUPPORTED. */
tt_status tt__optim_check_rows(const char *who, const tt_optimizer *optimizer, const tt__optim_group *group, size_t i);

#endif
