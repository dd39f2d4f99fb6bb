/* Time in tests. A busy machine or a sanitizer may hold any process up for seconds, so
 *
 *   - what must come is waited for so long that only a bug makes it late: PATIENCE_MS;
 *   - whoever must not be taken for frozen meanwhile has a heartbeat of CALM_MS;
 *   - what is promised within a time ("told within a second") may take leeway_ms() longer. Giving up takes PATIENCE_MS,
 *     so the two can't be mistaken for each other. TT_STRICT_TIMES=1, for a quiet machine, takes the leeway away. */
#ifndef TESTS_SUPPORT_PATIENCE_H
#define TESTS_SUPPORT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 60000, CALM_MS = 40000 };

static inline int64_t leeway_ms(void) {
    const char *strict = getenv("TT_STRICT_TIMES");
    return strict && *strict && *strict != '0' ? 0 : 20000;
}

/* On a busy machine a rank may stop waiting for the names of missing ranks before the store has told them. */
static inline bool nobody_can_be_named(const char *text) {
    return leeway_ms() && strstr(text, "not all ") && strstr(text, " ranks joined within ");
}

/* The seconds after which ctest ends this test (whose alarms should come before), or those of an ordinary one. */
static inline int test_seconds(void) {
    const char *given = getenv("TT_TIMEOUT");
    int seconds = given ? atoi(given) : 0;
    return seconds > 0 ? seconds : 300;
}

#endif
