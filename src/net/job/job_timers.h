/* The timers of a process (tt_expires()), in memory that it hands its launcher, which ends it if one expires. The
 * launcher reads them as a file: whatever the process does to that memory, it is bytes. */
#ifndef TT_NET_JOB_TIMERS_H
#define TT_NET_JOB_TIMERS_H

#include <stdatomic.h>
#include <stdint.h>

enum { TT__TIMERS = 64 };

/* What is said of one that has expired. */
typedef struct tt__timer_text {
    int64_t after_ms;
    int32_t thread, line;    /* that set it; 0: no line is known */
    char name[64], file[48]; /* ends with 0; "": none */
} tt__timer_text;

typedef struct tt__timers {
    /* When each expires, in ms of CLOCK_MONOTONIC; 0: it is not set. Written after its text, which stays until the
     * number changes. */
    _Atomic int64_t expires_ms[TT__TIMERS];
    tt__timer_text texts[TT__TIMERS];
} tt__timers;

#endif
