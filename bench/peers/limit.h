/* What the two limit programs share: a clock, pinning, a barrier of two processes, JSON-friendly medians. They are the
 * bare loops that a library can at best approach: no checks, no errors, no deadlines. */
#ifndef TT_BENCH_LIMIT_H
#define TT_BENCH_LIMIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rank r stays on the r-th CPU that this process may use. */
static inline void pin(int rank) {
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may) || CPU_COUNT(&may) <= rank)
        return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == rank) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

/* Memory that both processes see after fork(). */
static inline void *shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

typedef struct flags {
    _Alignas(128) _Atomic unsigned arrived[2][32]; /* a cache line pair for each rank */
} flags;

/* Arrive with number `turn`, wait until the other rank has. */
static inline void meet(flags *f, int rank, unsigned turn) {
    atomic_store_explicit(&f->arrived[rank][0], turn, memory_order_release);
    while ((int)(atomic_load_explicit(&f->arrived[!rank][0], memory_order_acquire) - turn) < 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts. */
static inline double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

#endif
