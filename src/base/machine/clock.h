/* Monotonic time, deadlines, and ticks: a clock that costs a few ns, for moments that are often recorded and seldom
 * read. */
#ifndef TT_BASE_CLOCK_H
#define TT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t tt__now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Time of day, in ns since 1970. */
static inline int64_t tt__realtime_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t tt__now_ms(void) { return tt__now_ns() / 1000000; }

/* Return the moment `timeout_ms` from now, in tt__now_ms() time, without overflow. */
static inline int64_t tt__deadline_ms(int64_t timeout_ms) {
    int64_t now = tt__now_ms();
    return timeout_ms > INT64_MAX - now ? INT64_MAX : now + timeout_ms;
}

/* Return the time left until `deadline_ms`, at least 0, as poll(2) takes it. */
static inline int tt__left_ms(int64_t deadline_ms) {
    int64_t left = deadline_ms - tt__now_ms();
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

/* ---- ticks ---- */

/* What ticks are: ns of CLOCK_MONOTONIC, or counts of the processor's time stamp counter. */
typedef enum tt__ticks_kind { TT__TICKS_MONOTONIC, TT__TICKS_TSC } tt__ticks_kind;

/* The kind that this process uses; MONOTONIC until tt__ticks_init() was called. */
extern tt__ticks_kind tt__ticks_of;

/* Choose the kind: the counter if the kernel keeps time by it, and has thus checked that the counters of all CPUs
 * agree. All processes of a host choose the same kind. */
tt__ticks_kind tt__ticks_init(void);

static inline uint64_t tt__ticks(void) {
#if defined(__x86_64__)
    if (tt__ticks_of == TT__TICKS_TSC)
        return __builtin_ia32_rdtsc();
#endif
    return (uint64_t)tt__now_ns();
}

/* One moment, as each clock of this host shows it. */
typedef struct tt__moment {
    uint64_t ticks;
    int64_t monotonic_ns, realtime_ns;
} tt__moment;

tt__moment tt__moment_now(void);

/* The line through two moments, which converts ticks of any process of the host to CLOCK_MONOTONIC. */
typedef struct tt__ticks_line {
    tt__moment from;
    double ns_per_tick;
} tt__ticks_line;

tt__ticks_line tt__ticks_line_through(const tt__moment *a, const tt__moment *b);

/* Times that another process wrote are limited to +-TT__NS_MAX, 73 years, so that sums and differences of a few of them
 * can't overflow. */
#define TT__NS_MAX (INT64_C(1) << 61)

static inline int64_t tt__ns_checked(int64_t ns) {
    return ns > TT__NS_MAX ? TT__NS_MAX : ns < -TT__NS_MAX ? -TT__NS_MAX : ns;
}

static inline tt__moment tt__moment_checked(tt__moment m) {
    return (tt__moment){m.ticks, tt__ns_checked(m.monotonic_ns), tt__ns_checked(m.realtime_ns)};
}

/* Convert ticks to ns of CLOCK_MONOTONIC, limited. */
static inline int64_t tt__ticks_ns(const tt__ticks_line *line, uint64_t ticks) {
    double since = (double)(int64_t)(ticks - line->from.ticks) * line->ns_per_tick, most = (double)TT__NS_MAX;
    if (!(since > -most && since < most)) /* also if it is NaN */
        return since > 0 ? TT__NS_MAX : -TT__NS_MAX;
    return tt__ns_checked(tt__ns_checked(line->from.monotonic_ns) + (int64_t)since);
}

#endif
