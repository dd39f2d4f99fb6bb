/* Which instruction set the kernels use, and cache lines. Sources named *_kernels.c are compiled once for each level,
 * and one level's table of functions is chosen at run time. All levels compute the same bits: the compiler contracts
 * nothing, and fma is used only where it is written. */
#ifndef TT_BASE_CPU_H
#define TT_BASE_CPU_H

#include "base/export.h"

typedef enum tt__cpu_level { TT__CPU_BASE, TT__CPU_AVX2, TT__CPU_AVX512, TT__CPU_LEVELS } tt__cpu_level;

/* Return the best level of this machine, or the lower one that the environment variable TT_CPU_LEVEL ("base", "avx2",
 * "avx512") names. Cheap. */
TT__EXPORT tt__cpu_level tt__cpu_level_get(void);

/* Check that TT_CPU_LEVEL, if it is set, names a level that this machine has. TT_ERR_INVALID. */
tt_status tt__cpu_level_check(void);

/* In a *_kernels.c file: the name of this level's table, as tt__reduce_kernels_avx2. */
#define TT__LEVEL_PASTE_(name, level) name##_##level
#define TT__LEVEL_PASTE(name, level) TT__LEVEL_PASTE_(name, level)
#define TT__LEVEL_NAME(name) TT__LEVEL_PASTE(name, TT__LEVEL)

/* In other files: declare the tables of `name`, and choose one. */
#if defined(__x86_64__)
#define TT__LEVEL_DECLARE(type, name) extern const type name##_base, name##_avx2, name##_avx512
#define TT__LEVEL_CHOOSE(name)                              \
    (tt__cpu_level_get() == TT__CPU_AVX512 ? &name##_avx512 \
     : tt__cpu_level_get() == TT__CPU_AVX2 ? &name##_avx2   \
                                           : &name##_base)
#else
#define TT__LEVEL_DECLARE(type, name) extern const type name##_base
#define TT__LEVEL_CHOOSE(name) (&name##_base)
#endif

enum { TT__CACHE_LINE = 64 }; /* bytes */

/* Fetch a cache line for writing before it is needed. Other CPUs have read it, so a store would otherwise wait until
 * they give it up, as long as a word takes from one CPU to another. */
static inline void tt__claim_line(const void *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line)); /* the builtin may become one for reading */
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
