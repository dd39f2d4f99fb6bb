/* Sessions that wait for a key, stand at a barrier, or watch a key. */
#ifndef TT_STORE_WAITERS_H
#define TT_STORE_WAITERS_H

#include "store/server/service.h"

/* Answer when all `count` keys are there, which may be now. A pending wait is forgotten. */
void tt__store_wait_begin(tt__store_session *session, tt__store_fields keys, uint64_t count);

/* Answer when the entry's barrier opens. */
void tt__store_barrier_begin(tt__store_session *session, tt__store_entry *entry);

/* Forget the pending wait or barrier, if any. */
void tt__store_wait_cancel(tt__store_session *session);

void tt__store_watch_begin(tt__store_session *session, tt__store_entry *entry);
void tt__store_watch_end(tt__store_session *session);

/* Answer the sessions for which only this entry's value was missing: all of them, or the one that has waited longest,
 * since a value of a queue is for one client; those at its barrier. */
void tt__store_release_waiters(tt__store_entry *entry);
void tt__store_release_waiter(tt__store_entry *entry);
void tt__store_release_barrier(tt__store_entry *entry);

/* Notify the sessions that watch the entry. `type` is TT__STORE_UPDATED, _CREATED or _DELETED. */
void tt__store_notify(tt__store_entry *entry, uint8_t type, tt__span old, tt__span now);

#endif
