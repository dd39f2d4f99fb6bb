/* A clock that costs a few ns, for marking moments that somebody may look at later. */
#ifndef TT_BASE_TICKS_H
#define TT_BASE_TICKS_H

#include "base/clock.h"

/* What ticks are: ns of CLOCK_MONOTONIC, or counts of the processor's time stamp counter. */
typedef enum tt__ticks_kind { TT__TICKS_MONOTONIC, TT__TICKS_TSC } tt__ticks_kind;

/* This process's, once somebody has called tt__ticks_init(); MONOTONIC before. */
extern tt__ticks_kind tt__ticks_of;

/* Choose: the counter, where the kernel keeps time by it and so has checked that those of all CPUs agree. The same in
 * all processes of a host. */
tt__ticks_kind tt__ticks_init(void);

static inline uint64_t tt__ticks(void) {
#if defined(__x86_64__)
    if (tt__ticks_of == TT__TICKS_TSC)
        return __builtin_ia32_rdtsc();
#endif
    return (uint64_t)tt__now_ns();
}

/* One moment in all clocks of this host. */
typedef struct tt__moment {
    uint64_t ticks;
    int64_t monotonic_ns, realtime_ns;
} tt__moment;

tt__moment tt__moment_now(void);

/* Ticks of any process of the host in CLOCK_MONOTONIC: the line through two moments, which need be no exact distance
 * apart. */
typedef struct tt__ticks_line {
    tt__moment from;
    double ns_per_tick;
} tt__ticks_line;

tt__ticks_line tt__ticks_line_through(const tt__moment *a, const tt__moment *b);

static inline int64_t tt__ticks_ns(const tt__ticks_line *line, uint64_t ticks) {
    return line->from.monotonic_ns + (int64_t)((double)(int64_t)(ticks - line->from.ticks) * line->ns_per_tick);
}

#endif
