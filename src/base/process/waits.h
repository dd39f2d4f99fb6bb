/* What a thread of the library waits with: for descriptors, for another thread's wake, and for time to pass. */
#ifndef TT_BASE_WAITS_H
#define TT_BASE_WAITS_H

#include "base/export.h"

#include <poll.h>
#include <stdint.h>

/* Wait until one of the `n` descriptors is ready, for at most `timeout_ms`; -1: for any time. Returns how many are
 * ready; 0: none, because the time is over or a signal handler has run. */
int tt__poll(struct pollfd *fds, int n, int timeout_ms);

/* Sleep for `us` microseconds, or until a signal handler has run. */
TT__EXPORT void tt__sleep_us(int64_t us);
static inline void tt__sleep_ms(int64_t ms) { tt__sleep_us(ms * 1000); }

/* Open a descriptor, *wake, by which one thread wakes another that polls it: readable from a ring until it is cleared.
 * Only TT_ERR_SYSTEM: there are no descriptors left; *wake is -1 then. */
tt_status tt__wake_open(int *wake);
void tt__wake_ring(int wake);
void tt__wake_clear(int wake);

/* Close the descriptor; -1 is allowed. */
void tt__wake_close(int wake);

#endif
