/* Ranks that wait for each other in different calls. */
#ifndef TT_COMM_WATCH_DEADLOCK_H
#define TT_COMM_WATCH_DEADLOCK_H

#include "comm/native_group.h"

/* Do ranks wait for each other in different calls, this one among them or behind them? TT_ERR_MISMATCH, recorded: who,
 * and in which calls. To be called every now and then by a rank that has published which rank it waits for. The lock is
 * held; it is given back while other hosts are asked. */
tt_status tt__check_deadlock(tt__world *world);

/* Does only the calling thread seem to use this process's groups? */
bool tt__one_thread(const tt__world *world);

#endif
