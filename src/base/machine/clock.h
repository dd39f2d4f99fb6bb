/* Monotonic time and deadlines. */
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

#endif
