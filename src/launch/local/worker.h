/* The environment that a worker gets: torchrun's variables. */
#ifndef TT_LAUNCH_LOCAL_WORKER_H
#define TT_LAUNCH_LOCAL_WORKER_H

#include "launch/job.h"

/* Call set() for each variable of this node's worker `i`; only_missing: the worker keeps its own value, if it has one.
 * Returns 0, or -1 as soon as set() is not 0. */
int tt__worker_env(const tt__job *job, int i,
                   int (*set)(void *user, const char *name, const char *value, bool only_missing), void *user);

#endif
