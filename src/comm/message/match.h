/* Matching of receives and messages. */
#ifndef TT_COMM_MESSAGE_MATCH_H
#define TT_COMM_MESSAGE_MATCH_H

#include "comm/message/link.h"
#include "comm/message/state.h"

/* Find the first message of the list with this key, or NULL. */
tt__message *tt__first_for(const tt__message_list *list, const tt__key *key);

/* Find the posted receive for a message with this key from link->peer, and move it into link->arriving; NULL: none.
 * Receives of the same collective under another word end with a mismatch. */
tt__message *tt__match_receive(tt__link *link, const tt__key *key, uint64_t bytes);

/* Find the posted or arriving receive with this id, or NULL. */
tt__message *tt__find_receive(tt__link *link, uint32_t id);

/* Find the announced or sending message with this id, or NULL. */
tt__message *tt__find_send(tt__link *link, uint32_t id);

/* Take the oldest arrival for this receive out of its list; NULL: none. *link: where it came. */
tt__arrival *tt__match_arrival(tt__messages *messages, const tt__message *receive, tt__link **link);

/* Does a message of the other side with this key and size fit? */
bool tt__fits(const tt__message *message, const tt__key *key, uint64_t bytes);

/* End a receive or send with TT_ERR_MISMATCH: the other side has `key` and `bytes`. */
void tt__mismatch(tt__messages *messages, tt__message *message, const tt__key *key, uint64_t bytes);

/* Complete a receive, which is in no list, with data of this rank, or by a mismatch. */
void tt__copy_to_receive(tt__messages *messages, tt__message *receive, const tt__key *key, const void *data,
                         size_t bytes);

/* Send "ready": a receive waits for the sender's message `send_id`, 0: for one that it has not announced. */
void tt__send_ready(tt__link *link, tt__message *receive, uint32_t send_id);

/* Let a receive, which is in no list, get the announced message `send_id`; or refuse that, since they differ: both
 * end. */
void tt__accept_announced(tt__link *link, tt__message *receive, uint32_t send_id);
void tt__refuse_announced(tt__link *link, tt__message *receive, uint32_t send_id, const tt__key *key, uint64_t bytes);

/* Has the group ended here? Messages for it are dropped then. */
bool tt__messages_have_ended(const tt__messages *messages, uint32_t group);

#endif
