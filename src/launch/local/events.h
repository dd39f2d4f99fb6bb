/* torchrun's events (--event-log-handler=console): how each worker ended, and the job, a line of JSON each. */
#ifndef TT_LAUNCH_LOCAL_EVENTS_H
#define TT_LAUNCH_LOCAL_EVENTS_H

#include "launch/local/report.h"

/* Write them to stderr. started: when the job did; succeeded: whether all workers of all nodes did. */
void tt__events_write(tt__streams *streams, const tt__job *job, const tt__worker *workers, const tt__moment *started,
                      bool succeeded);

#endif
