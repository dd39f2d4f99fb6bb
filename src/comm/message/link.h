/* A link to one peer: its life, and the end of messages on it. */
#ifndef TT_COMM_MESSAGE_LINK_H
#define TT_COMM_MESSAGE_LINK_H

#include "comm/message/state.h"

/* Make a link that moves bytes by `ops` (NULL: to this rank itself), in messages->links and ->active; its transport is
 * the caller's to fill in. NULL, recorded: no memory. */
tt__link *tt__link_new(tt__messages *messages, int peer, const tt__transport_ops *ops);

/* End the link: everything on it ends with `status`. Does nothing if it has ended. */
void tt__link_end(tt__link *link, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* The packet that comes will not be whole. */
void tt__packet_is_lost(tt__link *link);

/* Complete a message, which is in no list any more. */
void tt__message_done(tt__messages *messages, tt__message *message, tt_status status);

void tt__news_free(tt__received_news *news);

/* "rank 3 (host b, 10.0.0.2:4711)", "worker ps (id 3, host b, 10.0.0.2:4711)", with what is known; `where` may be NULL.
 * Returns `text`. */
enum { TT__RANK_TEXT_SIZE = 340 };
const char *tt__rank_text(const tt__messages *messages, int rank, const char *where, char text[TT__RANK_TEXT_SIZE]);

/* "rank 3", "worker ps (id 3)". Returns `text`. */
const char *tt__rank_name(const tt__messages *messages, int rank, char text[TT__RANK_TEXT_SIZE]);

#endif
