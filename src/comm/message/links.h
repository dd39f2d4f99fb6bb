/* Links to peers. */
#ifndef TT_COMM_MESSAGE_LINKS_H
#define TT_COMM_MESSAGE_LINKS_H

#include "comm/message/state.h"

/* Return the link to `peer`, made if it is a ring or leads to this rank; NULL, recorded, if there can't be one. */
tt__link *tt__link_to(tt__messages *messages, int peer);

/* Make a TCP link over a connected stream (taken; closed on failure). `where`: the peer's address. */
tt_status tt__link_add_tcp(tt__messages *messages, int peer, tt__stream stream, const char *where);

/* Attach rings that others have made to this rank since the last look. Returns whether there were any. */
bool tt__links_attach_rings(tt__messages *messages);

/* Make both, if they are not there yet. */
tt_status tt__poller_open(tt__messages *messages);
void tt__poller_close(tt__messages *messages);

/* Watch what serve_watched() is for; its events point to the engine. */
tt_status tt__poller_watch(tt__messages *messages, int fd);

/* Watch a TCP link for bytes to read; also for room to write, or not. The latter does nothing for rings. */
void tt__poller_watch_writes(tt__link *link, bool wanted);

/* Wake the sleepers; take the wake-up back once it was seen. */
void tt__poller_wake(tt__messages *messages);
void tt__poller_woken(tt__messages *messages);

/* Sleep until a link has something, at most `ms`. Called without the lock. */
void tt__poller_sleep(tt__messages *messages, int64_t ms);

#endif
