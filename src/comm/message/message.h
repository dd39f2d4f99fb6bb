/* Messages between ranks: what algorithms between hosts and sends and receives are made of.
 *
 * A message goes from one rank of the job to another under a key; a posted receive takes the first message that fits. Bytes move over a link to
 * each peer: a TCP connection (transport/tcp.c) or a ring in shared memory (transport/ring.c); nothing above this header knows which.
 *
 *   small (up to TT__EAGER_MAX)  header and data at once. A receiver that has not asked yet keeps a copy, up to TT__EAGER_WINDOW a peer that the
 *                                sender counts; beyond it small ones go as large ones do.
 *   large                        the receiver, once it has posted, says "ready"; then the data come, straight to where they belong. A sender that
 *                                was not told yet announces itself, so that a receive from any source can choose it.
 * So nobody buffers more than the window, and no message that nobody asked for stands in the way of others.
 *
 * Threads. `tt__messages` is guarded by the world's lock (world.h): every function here is called with it held. Where there are TCP links, a thread
 * moves bytes, answers and heartbeats while nobody else does (tt__messages_wait() takes over from it, so that a waiting caller needs no
 * wake-up of another thread). Without TCP links there is no thread and no descriptor.
 *
 * Who completes a message: tt__messages_progress(), in whatever thread runs it, or tt__message_cancel(); exactly once. */
#ifndef TT_COMM_MESSAGE_H
#define TT_COMM_MESSAGE_H

#include <tutti/backend.h>

#include <stdatomic.h>

struct tt__world;

enum { TT__EAGER_MAX = 16 << 10, TT__EAGER_WINDOW = 1 << 20 };

/* Which message this is. For collectives `seq` and `step` make it unique; a send or receive has seq 0 and its tag as step. */
typedef struct tt__key {
    uint32_t group; /* id */
    uint32_t seq;   /* of the call in the group; 0: point to point */
    uint32_t step;  /* the algorithm's own numbering, or the tag */
    uint32_t
        word; /* hash of the call's signature; a receive whose message has another ends with TT_ERR_MISMATCH. Not part of what is matched */
} tt__key;

/* One message on its way; the poster's memory until `done`. Zero it, fill in the first part. */
typedef struct tt__message {
    tt__key key;
    int peer; /* rank in the job; TT_ANY_SOURCE */
    void *data;
    size_t bytes;
    _Atomic uint32_t *pending; /* counted down when the message is done; may be NULL */

    /* Filled in. */
    bool done;
    tt_status
        status; /* TT_OK; TT_ERR_MISMATCH other word or size; TT_ERR_PEER the link's end; TT_ERR_ABORTED cancelled */
    int source; /* of a receive: who sent */
    size_t got; /* of a mismatch: the bytes that the sender has, */
    uint32_t got_word; /* and its word */
    /* The engine's own. */
    struct tt__message *next, *previous;
    size_t moved;
    uint32_t id, peer_id;
    uint8_t phase, is_recv;
} tt__message;

typedef struct tt__messages tt__messages;

/* Post. Never waits, never fails: what goes wrong is the message's status. */
void tt__message_send(struct tt__world *world, tt__message *message);
void tt__message_recv(struct tt__world *world, tt__message *message);

/* Take a message that is not done back: it is done then, with `status`. What the peer already sent for it is dropped when it comes. */
void tt__message_cancel(struct tt__world *world, tt__message *message, tt_status status);

/* Move what can be moved without waiting. Returns whether anything happened. */
bool tt__messages_progress(struct tt__world *world);

/* Sleep until something happens on a TCP link, or `ms` have passed; releases the world's lock meanwhile. Only where the world has TCP links. */
void tt__messages_wait(struct tt__world *world, int64_t ms);

/* ---- news of ranks on other hosts, which say them with heartbeats and when they happen */

typedef enum tt__news { TT__NEWS_LEFT, TT__NEWS_FAILED, TT__NEWS_ABORTED } tt__news;

/* Tell all ranks of `group` that no shared memory reaches: this rank left it, failed or aborted it, after call `seq`. */
void tt__news_send(struct tt__world *world, uint32_t group, const int *ranks, int count, tt__news news,
                   tt_status status, uint32_t seq, const char *text);

/* What a rank of another host said last about a group: true, and the rest filled in, if it left, failed or aborted. */
bool tt__news_of(struct tt__world *world, int rank, uint32_t group, tt__news *news, tt_status *status, uint32_t *seq,
                 char *text, size_t size);

/* Is the link to `rank` (on another host) alive? TT_ERR_PEER, recorded: "the connection to rank 3 (host b, 10.0.0.2:4711) ended", or "rank 3
 * (host b) has been silent for 5000 ms: it is frozen, or the network between is cut". */
tt_status tt__link_check(struct tt__world *world, int rank);

/* What rank `rank` (on another host) waits for, as of its last heartbeat; false if for nothing. group, seq, whom: as in tt__waiting. */
bool tt__remote_waiting(struct tt__world *world, int rank, uint32_t *group, uint32_t *seq, int *whom, uint32_t *record);

/* Ask rank `rank` (on another host) what it called as number `seq` of `group`; its text, or false if it has not come so far or does not answer within
 * `ms`. Releases the lock meanwhile. For error texts. */
bool tt__ask_call(struct tt__world *world, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms);

/* ---- life */

/* Rings to ranks of this host are made at first use; TCP links exist when this returns, handshake done. `cards`: everybody's (rendezvous.h).
 * Errors: TT_ERR_NET which ranks can't reach each other and by which addresses was tried, TT_ERR_AUTH, TT_ERR_TIMEOUT, TT_ERR_PEER. */
struct tt__card;
tt_status tt__messages_open(struct tt__world *world, const struct tt__card *cards, int64_t deadline_ms);

/* Before the cards: bind the listening socket, and write this process's addresses into the card. */
tt_status tt__messages_listen(struct tt__world *world, struct tt__card *card);

/* Leave: say goodbye on every link, end the thread, close everything. Never waits long. NULL world->messages is allowed. */
void tt__messages_close(struct tt__world *world);

#endif
