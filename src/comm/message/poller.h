/* epoll over the TCP links, and an eventfd that wakes its sleepers. */
#ifndef TT_COMM_MESSAGE_POLLER_H
#define TT_COMM_MESSAGE_POLLER_H

#include "comm/message/state.h"

/* Make both, if they are not there yet. */
tt_status tt__poller_open(tt__messages *messages);
void tt__poller_close(tt__messages *messages);

/* Watch what serve_watched() is for; its events point to the engine. */
tt_status tt__poller_watch(tt__messages *messages, int fd);

/* Watch a TCP link for bytes to read; also for room to write, or not. The latter does nothing for rings. */
tt_status tt__poller_add(tt__link *link);
void tt__poller_watch_writes(tt__link *link, bool wanted);

/* Wake the sleepers; take the wake-up back once it was seen. */
void tt__poller_wake(tt__messages *messages);
void tt__poller_woken(tt__messages *messages);

/* Sleep until a link has something, at most `ms`. Called without the lock. */
void tt__poller_sleep(tt__messages *messages, int64_t ms);

#endif
