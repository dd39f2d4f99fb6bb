/* Serving the links. */
#ifndef TT_COMM_MESSAGE_PROGRESS_H
#define TT_COMM_MESSAGE_PROGRESS_H

#include "comm/message/state.h"

/* Serve the links that epoll names, without waiting; serve all rings. Returns whether anything happened. */
bool tt__serve_events(tt__messages *messages);
bool tt__serve_rings(tt__messages *messages);

/* Wait until `condition` is signalled, at most `ms`; releases the lock meanwhile. */
void tt__wait_for_change(tt__messages *messages, pthread_cond_t *condition, int64_t ms);

/* Wake other callers that sleep, as something was completed; `sleepers` of them in any case. */
void tt__wake_waiters(tt__messages *messages, int sleepers);

#endif
