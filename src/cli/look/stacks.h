/* The stacks of a job's ranks: where in the program, and in the libraries below it, each of their threads is. */
#ifndef TT_CLI_STACKS_H
#define TT_CLI_STACKS_H

#include "cli/look/job_view.h"

#include <stdio.h>

/* Write the stack of each thread of each rank of this host, innermost call first. Processes are stopped while they are
 * looked at, and go on (those that were stopped stay so), whatever becomes of this one. What can't be seen of a rank is
 * said in its place: it has ended, is another user's, runs on another host. Waits at most `patience_ms` for a rank.
 * *seen: how many were. Errors: TT_ERR_UNSUPPORTED there is no libdw; TT_ERR_SYSTEM no process or pipe. */
tt_status tt__stacks_write(const tt__view *view, int64_t patience_ms, FILE *out, int *seen);

#endif
