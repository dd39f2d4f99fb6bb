/* Reading the stacks of a process, in a child of the launcher, which goes on meanwhile: tables in files that the other
 * process uses may be long or wrong. */
#ifndef TT_LAUNCH_LOCAL_READING_H
#define TT_LAUNCH_LOCAL_READING_H

#include "launch/job.h"

typedef struct tt__reading {
    pid_t child;         /* 0: none */
    int from;            /* the child's output; readable: call tt__reading_step() */
    int64_t deadline_ms; /* when the child is killed */
    int64_t patience_ms; /* how long that is after the beginning */
    char *text;          /* so far; allocated */
    size_t size;
} tt__reading;

/* Begin to read the stacks of `pid`, by job->stacks(pid, thread, pc), for at most patience_ms. False: it can't
 * begin. */
bool tt__reading_begin(tt__reading *reading, const tt__job *job, pid_t pid, pid_t thread, uint64_t pc,
                       int64_t patience_ms);

/* Take what there is, without waiting. True: nothing is left to come, and the child is gone. */
bool tt__reading_step(tt__reading *reading);

/* End it, if it still goes on, and take the text, to be freed; NULL: there is none. */
char *tt__reading_take(tt__reading *reading);

#endif
