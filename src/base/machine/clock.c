#include "base/machine/clock.h"

#include "base/files/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

tt__ticks_kind tt__ticks_of = TT__TICKS_MONOTONIC;

#if defined(__x86_64__)
static bool kernel_trusts_tsc(void) {
    char source[64];
    int fd = tt__fd(open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? 0 : read(fd, source, sizeof source - 1);
    if (fd >= 0)
        close(fd);
    source[n < 0 ? 0 : n] = '\0';
    return !strcmp(source, "tsc\n") || !strcmp(source, "kvm-clock\n");
}

static void choose_ticks(void) {
    unsigned a, b, c, d = 0;
    bool invariant = __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8;
    if (invariant && kernel_trusts_tsc())
        tt__ticks_of = TT__TICKS_TSC;
}

tt__ticks_kind tt__ticks_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* several threads may begin at once */
    pthread_once(&once, choose_ticks);
    return tt__ticks_of;
}
#else
tt__ticks_kind tt__ticks_init(void) { return TT__TICKS_MONOTONIC; }
#endif

/* Read the clocks a few times, and keep the try that was interrupted least. */
tt__moment tt__moment_now(void) {
    tt__moment moment = {0};
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t before = tt__ticks();
        int64_t monotonic = tt__now_ns(), real = tt__realtime_ns();
        uint64_t width = tt__ticks() - before;
        if (width < best) {
            best = width;
            moment = (tt__moment){before + width / 3, monotonic, real};
        }
    }
    return moment;
}

tt__ticks_line tt__ticks_line_through(const tt__moment *a, const tt__moment *b) {
    tt__ticks_line line = {*a, 1};
    if (b->ticks != a->ticks)
        line.ns_per_tick = (double)(tt__ns_checked(b->monotonic_ns) - tt__ns_checked(a->monotonic_ns)) /
                           (double)(int64_t)(b->ticks - a->ticks);
    return line;
}
