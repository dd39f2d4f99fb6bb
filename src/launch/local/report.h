/* Texts of the report: how workers ended, and which failed first. */
#ifndef TT_LAUNCH_LOCAL_REPORT_H
#define TT_LAUNCH_LOCAL_REPORT_H

#include "launch/job.h"
#include "launch/local/streams.h"
#include "launch/machine/failures.h"

/* Who failed first, of all nodes. */
typedef struct tt__first {
    int rank, node, local_rank;
    const char *hostname; /* NULL: there is one node only */
    const tt__worker *worker;
    const char *tail; /* the last lines of its stderr */
    bool alike;       /* others failed alike; this is the lowest of these ranks */
    /* it failed at about the time when a node was lost, perhaps because of that; the loss is reported before */
    bool unsure;
} tt__first;

/* Report the first failure in full. started: when the job did. */
void tt__report_first(tt__streams *streams, const tt__job *job, const tt__first *first, const tt__moment *started);

/* Report the first failure of an attempt that is followed by another, in which ranks that survive go on, or all start
 * again. */
void tt__report_attempt(tt__streams *streams, const tt__job *job, const tt__first *first, bool recovers);

/* "rank 1 (pid 7) was killed by SIGKILL (signal 9)". Returns `text`. */
enum { TT__ATTEMPT_TEXT = 400 };
const char *tt__attempt_text(const tt__first *first, char *text, size_t size);

/* Report this node's workers except number `first` (-1: all) in a line each, equal ones together. */
void tt__report_others(tt__streams *streams, const tt__job *job, const tt__worker *workers, int first);

/* Report what workers did that made no call while others waited for them in vain. */
void tt__report_idle(tt__streams *streams, const tt__job *job, const tt__worker *workers);

/* Write torchrun's events (--event-log-handler=console) to stderr: how each worker ended, and the job, a line of JSON
 * each. started: when the job did; succeeded: whether all workers of all nodes did. */
void tt__events_write(tt__streams *streams, const tt__job *job, const tt__worker *workers, const tt__moment *started,
                      bool succeeded);

#endif
