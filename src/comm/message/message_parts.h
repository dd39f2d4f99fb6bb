/* The functions of the message engine that its files call, in the order of state.h. The world's lock is held unless it
 * is said otherwise. */
#ifndef TT_COMM_MESSAGE_MESSAGE_PARTS_H
#define TT_COMM_MESSAGE_MESSAGE_PARTS_H

#include "comm/message/message.h"
#include "comm/message/state.h"

/* ---- link.c */

/* "rank 3 (host b, 10.0.0.2:4711)", "worker ps (id 3, host b, 10.0.0.2:4711)", with what is known; `where` may be NULL.
 * Returns `text`. */
enum { TT__RANK_TEXT_SIZE = 340 };
const char *tt__rank_text(const tt__messages *messages, int rank, const char *where, char text[TT__RANK_TEXT_SIZE]);

/* "rank 3", "worker ps (id 3)". Returns `text`. */
const char *tt__rank_name(const tt__messages *messages, int rank, char text[TT__RANK_TEXT_SIZE]);

/* A message that has no receive yet, or the announcement of one. */
typedef struct tt__arrival {
    struct tt__arrival *next;
    tt__key key;
    uint64_t bytes;
    uint32_t id; /* of the announced send; 0: an eager message, whose data are here */
    uint32_t room;
    unsigned char data[];
} tt__arrival;

/* A peer's "ready" for a message that was not posted here yet. */
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

/* Make a link that moves bytes by `ops` (NULL: to this rank itself), in messages->links and ->active; its transport is
 * the caller's to fill in. NULL, recorded: no memory. */
tt__link *tt__link_new(tt__messages *messages, int peer, const tt__transport_ops *ops);

/* End the link: everything on it ends with `status`. Does nothing if it has ended. */
void tt__link_end(tt__link *link, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* Complete a message, which is in no list any more. */
void tt__message_done(tt__messages *messages, tt__message *message, tt_status status);

/* The packet under way will not be complete: drop it. */
void tt__packet_is_lost(tt__link *link);

void tt__news_free(tt__received_news *news);

/* ---- links.c */

/* Return the link to `peer`, made if it is a ring or leads to this rank; NULL, recorded, if there can't be one. */
tt__link *tt__link_to(tt__messages *messages, int peer);

/* Make a TCP link over a connected stream (taken; closed on failure). `where`: the peer's address. */
tt_status tt__link_add_tcp(tt__messages *messages, int peer, tt__stream stream, const char *where);

/* Attach rings that others have made to this rank since the last look. Returns whether there were any. */
bool tt__links_attach_rings(tt__messages *messages);

/* Make the epoll and the eventfd, unless they exist. */
tt_status tt__poller_open(tt__messages *messages);
void tt__poller_close(tt__messages *messages);

/* Watch the descriptor that serve_watched() serves; its events point to the engine. */
tt_status tt__poller_watch(tt__messages *messages, int fd);

/* Watch a TCP link for bytes to read, and, if wanted, for room to write. Does nothing for rings. */
void tt__poller_watch_writes(tt__link *link, bool wanted);

/* Wake the sleepers; clear the wake-up once it was seen. */
void tt__poller_wake(tt__messages *messages);
void tt__poller_woken(tt__messages *messages);

/* Sleep until a link has something, at most `ms`. Called without the lock. */
void tt__poller_sleep(tt__messages *messages, int64_t ms);

/* ---- outgoing.c */

/* Send a frame whose payload is `bytes` at `body`: now or, what the link does not take, later. */
void tt__send_frame(tt__link *link, tt__frame *frame, const void *body, size_t bytes);

/* Send a frame without payload together with whatever is written next. */
void tt__queue_frame(tt__link *link, tt__frame *frame);

/* Write what waits to be written. Returns whether anything was. */
bool tt__link_flush(tt__link *link);

/* Does something wait to be written? */
bool tt__link_wants_write(const tt__link *link);

/* Send the data of `message`, for which receive `receive_id` is ready. */
void tt__begin_sending(tt__link *link, tt__message *message, uint32_t receive_id);

/* Take a message out of `sending`, however much of it was written. */
void tt__stop_sending(tt__link *link, tt__message *message);

/* Refuse the peer's message `other` (0: unknown): it will not be transferred. */
void tt__refuse(tt__link *link, int flags, const tt__message *own, uint32_t other);

/* Return the window space of an eager message of `bytes` to its sender. */
void tt__give_credit(tt__link *link, uint64_t bytes);

/* ---- match.c */

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

/* Complete a receive, which is in no list, with data that lie here, or with a mismatch. */
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

/* ---- heartbeat.c */

/* Send beats if they are due; returns when the next are. */
int64_t tt__beats_send(tt__messages *messages, int64_t now_ms);

/* Handle a beat that has arrived. */
void tt__on_beat(tt__link *link, const tt__beat *beat);

/* If this process itself was stopped, it has read nothing meanwhile: restart the peers' silence from now. */
void tt__beats_check_clock(tt__messages *messages, int64_t now_ms);

/* ---- news.c */

/* Handle news: `bytes` of tt__news_body and text. */
void tt__on_news(tt__link *link, const void *body, size_t bytes);

/* Answer the question in link->frame. */
void tt__on_question(tt__link *link);

/* Handle the answer in link->frame, whose text is in link->control. */
void tt__on_answer(tt__link *link, size_t bytes);

/* Return memory for a packet of `bytes` that is about to come; NULL: it is dropped. Pass on a packet that has come. */
void *tt__packet_room(tt__link *link, size_t bytes);
void tt__packet_has_come(tt__link *link);

/* ---- incoming.c */

/* Read what has come and act on it. Returns whether anything has come. */
bool tt__link_read(tt__link *link);

/* ---- progress.c */

/* Serve the links that epoll names, without waiting; serve all rings. Returns whether anything happened. */
bool tt__serve_events(tt__messages *messages);
bool tt__serve_rings(tt__messages *messages);

/* Wait until `condition` is signalled, at most `ms`; releases the lock meanwhile. */
void tt__wait_for_change(tt__messages *messages, pthread_cond_t *condition, int64_t ms);

/* Wake callers that sleep, as something was completed. `sleepers`: how many surely sleep. */
void tt__wake_waiters(tt__messages *messages, int sleepers);

/* ---- thread.c */

tt_status tt__messages_thread_start(tt__messages *messages);

/* End the thread and wait for its end; does nothing if there is none. The lock must not be held. */
void tt__messages_thread_stop(tt__messages *messages);

#endif
