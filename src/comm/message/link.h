/* A link to one peer: its life, and the end of messages on it. */
#ifndef TT_COMM_MESSAGE_LINK_H
#define TT_COMM_MESSAGE_LINK_H

#include "comm/message/message.h"
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

typedef struct tt__link tt__link;

/* A message that has no receive yet, or the announcement of one. */
typedef struct tt__arrival {
    struct tt__arrival *next;
    tt__key key;
    uint64_t bytes;
    uint32_t id; /* of the announced send; 0: an eager message, whose data are here */
    uint32_t room;
    unsigned char data[];
} tt__arrival;

/* The readiness of a receiver for a message that was not posted here yet. */
typedef struct tt__readiness {
    struct tt__readiness *next;
    tt__key key;
    uint64_t bytes;
    uint32_t id; /* of the receive */
} tt__readiness;

/* Make a record with room for `bytes`, from the free list if possible; NULL: no memory. */
tt__arrival *tt__arrival_new(tt__messages *messages, const tt__key *key, uint64_t bytes, uint32_t id);

/* Give the record back to the free list. NULL is allowed. */
void tt__arrival_free(tt__messages *messages, tt__arrival *arrival);
void tt__arrivals_free_all(tt__messages *messages);

/* Append it to the link's list. */
void tt__arrival_keep(tt__link *link, tt__arrival *arrival);

/* Take *at out of the link's list; tt__arrival_drop() also frees it. */
tt__arrival *tt__arrival_take(tt__link *link, tt__arrival **at);
void tt__arrival_drop(tt__link *link, tt__arrival **at);

/* Append a readiness to the link's list; false: no memory. */
bool tt__ready_keep(tt__link *link, const tt__key *key, uint64_t bytes, uint32_t id);

/* Take *at out of the link's list, and free it. */
void tt__ready_drop(tt__link *link, tt__readiness **at);

#endif
