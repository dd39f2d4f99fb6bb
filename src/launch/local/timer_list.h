/* Timers of the workers' processes (tt_expires()), as the launcher watches them: it looks into their memory a few times
 * a second, as long as there is any. */
#ifndef TT_LAUNCH_LOCAL_TIMER_LIST_H
#define TT_LAUNCH_LOCAL_TIMER_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process that has not done in time what it was to do. */
typedef struct tt__expired {
    int worker; /* of this node, below which the process runs; -1: not known */
    pid_t pid;
    int pidfd;    /* of it, or -1; its list's */
    pid_t thread; /* that set the timer; 0: not known */
    int signal;   /* what it gets */
    char text[400];
} tt__expired;

typedef struct tt__timed tt__timed;

typedef struct tt__timer_list {
    tt__timed *first;
    int64_t look_ms; /* when to look next */
    int n;           /* processes */
} tt__timer_list;

/* What a process takes: its connection, its memory, and what names it. */
enum { TT__TIMED_DESCRIPTORS = 3 };

/* Watch the timers of `pid` in `memory`, which this takes over, until the end of its connection, `caller`. */
void tt__timers_add(tt__timer_list *list, int caller, int worker, pid_t pid, int memory);
void tt__timers_remove(tt__timer_list *list, int caller);

/* Forget the processes of a worker. */
void tt__timers_forget(tt__timer_list *list, int worker);
void tt__timers_free(tt__timer_list *list);

/* Return when tt__timers_expired() is to be called, in tt__now_ms() time; INT64_MAX: never. */
int64_t tt__timers_look_ms(const tt__timer_list *list);

/* If it is time: find a process of which a timer has expired, each once. False: there is no other. */
bool tt__timers_expired(tt__timer_list *list, tt__expired *expired);

#endif
