/* Cache lines, in which CPUs hand memory to each other. */
#ifndef TT_BASE_CACHE_LINE_H
#define TT_BASE_CACHE_LINE_H

enum { TT__CACHE_LINE = 64 };

/* Take a cache line that is about to be written from other CPUs, which have read it: to wait for that takes as long as
 * a word takes from one CPU to another. */
static inline void tt__claim_line(const void *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line)); /* the builtin may become one for reading */
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
