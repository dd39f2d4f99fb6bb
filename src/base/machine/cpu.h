/* Which instruction set the kernels use. Sources named *_kernels.c are compiled once for each level; a table per level
 * is chosen at run time. Arithmetic is the same at every level (no contraction; fma only where written), so the bits
 * are too. */
#ifndef TT_BASE_CPU_H
#define TT_BASE_CPU_H

#include "base/export.h"

typedef enum tt__cpu_level { TT__CPU_BASE, TT__CPU_AVX2, TT__CPU_AVX512, TT__CPU_LEVELS } tt__cpu_level;

/* Return the best level this machine has, or the lower one that the environment variable TT_CPU_LEVEL ("base", "avx2",
 * "avx512") asks for. Cheap. */
TT__EXPORT tt__cpu_level tt__cpu_level_get(void);

/* Does TT_CPU_LEVEL, if it is set, name a level that this machine has? TT_ERR_INVALID. */
tt_status tt__cpu_level_check(void);

/* In a *_kernels.c file: the name of this level's table, tt__reduce_kernels_avx2. */
#define TT__LEVEL_PASTE_(name, level) name##_##level
#define TT__LEVEL_PASTE(name, level) TT__LEVEL_PASTE_(name, level)
#define TT__LEVEL_NAME(name) TT__LEVEL_PASTE(name, TT__LEVEL)

/* Elsewhere: declare the tables of `name`, and choose one. */
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

#endif
