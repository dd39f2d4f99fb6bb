/* Timers of the workers' processes, as the launcher watches them: a process that misses a deadline is ended. They
 * come from tt_expires(), in memory, or from torchrun's client, through a named pipe. */
#ifndef TT_LAUNCH_LOCAL_WORKER_TIMERS_H
#define TT_LAUNCH_LOCAL_WORKER_TIMERS_H

#include "launch/job.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process that has missed a deadline. */
typedef struct tt__expired {
    int worker; /* of this node, below which the process runs; -1: not known */
    pid_t pid;
    int pidfd;    /* the process's, owned by the list; -1: none */
    pid_t thread; /* which set the timer; 0: not known */
    int signal;   /* what it gets */
    char text[400];
} tt__expired;

/* ---- timers of tt_expires(): the launcher looks into the memory of the processes a few times a second, as long as
 * there is any */

typedef struct tt__timed tt__timed;

typedef struct tt__timer_list {
    tt__timed *first;
    int64_t look_ms; /* when to look next */
    int n;           /* processes */
} tt__timer_list;

/* What a process takes: its connection, its memory, and its pidfd. */
enum { TT__TIMED_DESCRIPTORS = 3 };

/* Watch the timers of `pid` in `memory`, which this takes over, until the end of its connection, `caller`. False: it
 * has ended, or there is no memory or descriptor for it. */
bool tt__timers_add(tt__timer_list *list, int caller, int worker, pid_t pid, int memory);
void tt__timers_remove(tt__timer_list *list, int caller);

/* Forget the processes of a worker. */
void tt__timers_forget(tt__timer_list *list, int worker);
void tt__timers_free(tt__timer_list *list);

/* Return when tt__timers_expired() is to be called, in tt__now_ms() time; INT64_MAX: never. */
int64_t tt__timers_look_ms(const tt__timer_list *list);

/* If it is time: find a process with an expired timer; each is found once. False: there is no other. */
bool tt__timers_expired(tt__timer_list *list, tt__expired *expired);

/* ---- torchrun's timers (torch.distributed.elastic.timer.FileTimerClient): workers write a line of JSON for each timer
 * that they set or end into a named pipe, TORCHELASTIC_TIMER_FILE, if TORCHELASTIC_ENABLE_FILE_TIMER is 1. Version 1 of
 * its protocol: {"version": 1, "pid": 7, "scope_id": "eval.py#40", "expiration_time": seconds since 1970 or less than
 * 0: ended, "signal": 9}. */

typedef struct tt__file_timer tt__file_timer;

typedef struct tt__file_timers {
    int pipe; /* -1: not open */
    bool failed;
    char line[8192]; /* what was read of an unfinished line */
    size_t used;
    bool skip; /* the rest of a line that is too long */
    tt__file_timer *first;
    int n;
} tt__file_timers;

/* Write the pipe's path; NULL: it is not wanted. Returns `path`. */
const char *tt__file_timers_path(const tt__job *job, char path[PATH_MAX]);

/* Make the pipe, in place of one that was there (in the keeper, before workers are started); remove it, if the user
 * chose where it is. */
void tt__file_timers_make(const tt__job *job);
void tt__file_timers_unlink(const tt__job *job);

/* Open the pipe, if it is wanted. False, with errno: it can't be opened, or others may use it. */
bool tt__file_timers_open(tt__file_timers *timers, const tt__job *job);

/* Close it, and forget all timers. */
void tt__file_timers_close(tt__file_timers *timers);

/* Forget the timers of a process. */
void tt__file_timers_forget(tt__file_timers *timers, pid_t pid);

/* Read what has come. */
void tt__file_timers_read(tt__file_timers *timers);

/* Return when the next timer expires, in tt__now_ms() time; INT64_MAX: none. */
int64_t tt__file_timers_look_ms(const tt__file_timers *timers);

/* Take a timer that has expired, and forget all others of its process; `worker` is not set. False: there is none. */
bool tt__file_timers_expired(tt__file_timers *timers, tt__expired *expired);

#endif
