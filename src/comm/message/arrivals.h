/* What a peer has sent or announced before this rank asked for it, in the order in which it came. */
#ifndef TT_COMM_MESSAGE_ARRIVALS_H
#define TT_COMM_MESSAGE_ARRIVALS_H

#include "comm/message/message.h"

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
