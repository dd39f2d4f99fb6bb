/* State of the processes of this host's ranks. The lock is held. */
#ifndef TT_COMM_SHARED_PROCESS_H
#define TT_COMM_SHARED_PROCESS_H

#include "comm/world.h"

/* Has the process of a rank with a socket ended? */
bool tt__process_ended(const tt__peer *peer);

/* Has rank r of the job, of this host, been stopped for most of the heartbeat? Then TT_ERR_PEER, recorded. To be called
 * regularly; the caller updates world->last_check_ms. */
tt_status tt__check_stopped(tt__world *world, int r, int64_t now_ms);

/* Find the lowest rank of the set (of the job) whose main thread has ended: "; the main thread of rank 3 (pid 1234) has
 * ended, and another thread keeps that process alive"; "": none. Returns `text`. */
const char *tt__process_main_ended(const tt__world *world, const tt__rankset *set, char *text, size_t size);

/* "rank 3 (pid 1234)"; the pid only where it means something to this process. Returns `text`. */
const char *tt__process_name(const tt__world *world, int r, char *text, size_t size);

#endif
