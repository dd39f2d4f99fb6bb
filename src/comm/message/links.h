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

#endif
