/* The clock of another host, asked for over ssh: `tutti remote-clock` runs there, says its version in a line, and then
 * the time, in nanoseconds since 1970, for each line that it reads. */
#ifndef TT_LAUNCH_ADAPTERS_REMOTE_CLOCK_H
#define TT_LAUNCH_ADAPTERS_REMOTE_CLOCK_H

#include <tutti/base.h>

#include <stdio.h>

typedef struct tt__remote_clock {
    int64_t ahead_ns; /* how far it is ahead of this host's clock */
    int64_t error_ns; /* the error of that is at most half of the quickest round trip */
} tt__remote_clock;

/* Ask a host, as --ssh has it, within `timeout_ms`. Errors: TT_ERR_SYSTEM ssh can't be started, or there is no such
 * command; TT_ERR_TIMEOUT; TT_ERR_PROTOCOL something else answers, or another version. */
tt_status tt__remote_clock_ask(tt__remote_clock *clock, const char *host, int64_t timeout_ms);

/* Be the other end, until `in` ends. */
void tt__remote_clock_run(FILE *in, FILE *out);

#endif
