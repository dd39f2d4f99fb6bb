/* Ranks that wait for each other in different calls. */
#ifndef TT_COMM_WATCH_DEADLOCK_H
#define TT_COMM_WATCH_DEADLOCK_H

#include "comm/native_group.h"

/* Do ranks wait for each other in different calls, this one among them or behind them? TT_ERR_MISMATCH, recorded: who,
 * and in which calls. To be called every now and then by a rank that has published which rank it waits for. The lock is
 * held; it is given back while other hosts are asked. */
tt_status tt__check_deadlock(tt__world *world);

/* Publish which threads make the calls on this process's groups. To be called by a thread that waits. */
void tt__note_users(tt__world *world);

/* May another thread than the one that waits make this process's next call on the group? */
bool tt__may_call(const tt__world *world, uint32_t group);

#endif
