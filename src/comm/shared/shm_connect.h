/* Exchange of shared memory over abstract Unix sockets. */
#ifndef TT_COMM_SHARED_SHM_CONNECT_H
#define TT_COMM_SHARED_SHM_CONNECT_H

#include "comm/rendezvous/rendezvous.h"
#include "comm/world.h"

/* Listen for peers of this host: fills card->socket and card->nonce. *fd is the caller's. */
tt_status tt__listen(int *fd, int world, tt__card *card);

/* Connect to every peer of this host once: this rank calls lower ranks, higher ones call it at world->listener. Fills
 * peers[r].shm, control, socket, pid and pidfd. Strangers' connections are closed. Errors: TT_ERR_PEER a rank ended
 * meanwhile, or failed to join; TT_ERR_TIMEOUT, TT_ERR_PROTOCOL; TT_ERR_SYSTEM the kernel has refused to pass
 * descriptors for a minute, or for half of the time left. */
tt_status tt__connect_all(tt__world *world, const tt__card *cards, int64_t deadline_ms);

#endif
