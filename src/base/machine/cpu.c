#include "base/machine/cpu.h"

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* Has the CPU F16C? Some compilers' __builtin_cpu_supports() don't know the name. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

static tt__cpu_level detect_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return TT__CPU_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return TT__CPU_AVX2;
#endif
    return TT__CPU_BASE;
}

/* Find the level called `name`, `best` if no name is given; false: no level up to `best` is called so. */
static bool named_level(const char *name, tt__cpu_level best, tt__cpu_level *level) {
    static const char *const names[TT__CPU_LEVELS] = {"base", "avx2", "avx512"};
    *level = best;
    if (!name || !*name)
        return true;
    for (int i = 0; i <= (int)best; i++)
        if (!strcmp(name, names[i])) {
            *level = (tt__cpu_level)i;
            return true;
        }
    return false;
}

static tt_status fail_level(const char *name) {
    return tt__fail(TT_ERR_INVALID,
                    "TT_CPU_LEVEL: expected base, avx2 or avx512, as far as this CPU goes, got \"%.40s\"", name);
}

tt_status tt__cpu_level_check(void) {
    tt__cpu_level level;
    const char *name = getenv("TT_CPU_LEVEL");
    return named_level(name, detect_level(), &level) ? TT_OK : fail_level(name);
}

static tt__cpu_level choose_level(void) {
    tt__cpu_level level;
    const char *name = getenv("TT_CPU_LEVEL");
    if (!named_level(name, detect_level(), &level))
        tt__log(TT_LOG_WARNING, "TT_CPU_LEVEL: there is no level \"%.40s\" here; using the best", name);
    return level;
}

tt__cpu_level tt__cpu_level_get(void) {
    static _Atomic int cached = -1;
    int level = atomic_load_explicit(&cached, memory_order_relaxed);
    if (level < 0) {
        level = (int)choose_level();
        atomic_store_explicit(&cached, level, memory_order_relaxed);
    }
    return (tt__cpu_level)level;
}
