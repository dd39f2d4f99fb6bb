/* For tests that draw their cases: a generator, and how much of it. Each run draws a seed of its own, which it prints.
 * A case that fails prints its number; TT_STORM_SEED and TT_STORM_ONLY=NUMBER repeat it alone.
 *
 *   TT_STORM_CASES=N  how many cases, instead of the few that gate
 *   TT_STORM_SEED=N   this seed */
#ifndef TESTS_SUPPORT_STORM_H
#define TESTS_SUPPORT_STORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static inline long storm_number(const char *name, long fallback) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : fallback;
}

/* Name the programs of the tests' folder, and the command, where the test runner has not: a storm that is started by
 * hand must not pass because it finds nothing to play. */
static inline void storm_find_programs(void) {
    char folder[2048], command[2112];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(folder, '/');
    if (!slash)
        return;
    *slash = '\0';
    snprintf(command, sizeof command, "%s/../../bin/tutti", folder);
    setenv("TT_PROGRAMS", folder, 0);
    setenv("TUTTI", command, 0);
}

/* Begin main(): draw the seed, which forked ranks share. */
static inline void storm_begin(void) {
    storm_find_programs();
    const char *given = getenv("TT_STORM_SEED");
    uint32_t seed = 1;
    char text[16];
    if (!given || !*given) {
        if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
            seed = 1;
        snprintf(text, sizeof text, "%u", seed >> 1);
        setenv("TT_STORM_SEED", text, 1);
    }
    printf("TT_STORM_SEED=%s\n", getenv("TT_STORM_SEED"));
    fflush(stdout);
}

/* How many cases: `few`, and under a sanitizer, where each takes several times as long, half of them. */
static inline long storm_cases(long few) {
    return storm_number("TT_STORM_CASES", getenv("TT_SANITIZED") ? (few + 1) / 2 : few);
}

static inline uint64_t storm_draw(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline size_t storm_below(uint64_t *state, size_t n) { return (size_t)(storm_draw(state) % n); }

/* The generator of case `number`: the same whichever cases ran before. */
static inline uint64_t storm_case(long number) {
    uint64_t state = (uint64_t)storm_number("TT_STORM_SEED", 1) << 32 ^ (uint64_t)number;
    storm_draw(&state);
    return state;
}

static inline bool storm_skips(long number) {
    long only = storm_number("TT_STORM_ONLY", -1);
    return only >= 0 && only != number;
}

#endif
