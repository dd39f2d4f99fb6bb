/* Log lines about refused connections, bounded in number. What was only counted is logged later. */
#ifndef TT_NET_REFUSALS_H
#define TT_NET_REFUSALS_H

#include <stdint.h>

/* Zeroed: none yet. Not locked. */
typedef struct tt__refusals {
    int64_t window_ms; /* since when the lines below are counted */
    int lines, suppressed;
} tt__refusals;

/* Log one line, "WHO: WHAT", or only count it. */
void tt__refusals_log(tt__refusals *refusals, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Log how many were only counted, if it is time to. */
void tt__refusals_flush(tt__refusals *refusals, const char *who);

/* Log it now. */
void tt__refusals_flush_now(tt__refusals *refusals, const char *who);

/* When tt__refusals_flush() has something to log; -1: never. */
int64_t tt__refusals_next_ms(const tt__refusals *refusals);

#endif
