/* A clock that costs a few ns, for moments that may be looked at later. */
#ifndef TT_BASE_TICKS_H
#define TT_BASE_TICKS_H

#include "base/machine/clock.h"

/* What ticks are: ns of CLOCK_MONOTONIC, or counts of the processor's time stamp counter. */
typedef enum tt__ticks_kind { TT__TICKS_MONOTONIC, TT__TICKS_TSC } tt__ticks_kind;

/* The kind that this process uses, once tt__ticks_init() was called; MONOTONIC before. */
extern tt__ticks_kind tt__ticks_of;

/* Choose the kind: the counter where the kernel keeps time by it, and thus has checked that those of all CPUs agree.
 * All processes of a host choose the same. */
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

/* The line through two moments: ticks of any process of the host in CLOCK_MONOTONIC. */
typedef struct tt__ticks_line {
    tt__moment from;
    double ns_per_tick;
} tt__ticks_line;

tt__ticks_line tt__ticks_line_through(const tt__moment *a, const tt__moment *b);

/* Times that another process wrote are brought within +-TT__NS_MAX, 73 years, by tt__ns_checked(): sums and
 * differences of a few of them don't overflow. */
#define TT__NS_MAX (INT64_C(1) << 61)

static inline int64_t tt__ns_checked(int64_t ns) {
    return ns > TT__NS_MAX ? TT__NS_MAX : ns < -TT__NS_MAX ? -TT__NS_MAX : ns;
}

static inline tt__moment tt__moment_checked(tt__moment m) {
    return (tt__moment){m.ticks, tt__ns_checked(m.monotonic_ns), tt__ns_checked(m.realtime_ns)};
}

/* Return the ns of CLOCK_MONOTONIC, checked. */
static inline int64_t tt__ticks_ns(const tt__ticks_line *line, uint64_t ticks) {
    double since = (double)(int64_t)(ticks - line->from.ticks) * line->ns_per_tick, most = (double)TT__NS_MAX;
    if (!(since > -most && since < most)) /* also where it is no number */
        return since > 0 ? TT__NS_MAX : -TT__NS_MAX;
    return tt__ns_checked(tt__ns_checked(line->from.monotonic_ns) + (int64_t)since);
}

#endif
