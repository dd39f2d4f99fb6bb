/* Messages between ranks: what algorithms between hosts and sends and receives are made of.
 *
 * A message goes from one rank of the job to another under a key; a posted receive takes the first message that fits. Bytes move over a link to
 * each peer: a TCP connection (transport/tcp.c) or a pair of rings in shared memory (transport/ring.c); nothing above this header knows which.
 *
 *   small (up to TT__EAGER_MAX)  header and data at once. A receiver that has not asked yet keeps a copy, up to TT__EAGER_WINDOW a peer that the
 *                                sender counts; beyond it small ones go as large ones do.
 *   large                        the sender announces itself; the receiver says "ready"; then the data come, straight to where they belong. A
 *                                receiver that knows which message will be its own says "ready" as soon as it has posted, and a sender
 *                                that knows it needs not announce. Keys of collectives are unique; of large sends and receives with one
 *                                tag the first belongs to the first, unless a receive from any source comes between.
 * So nobody buffers more than the window, and no message that nobody asked for stands in the way of others.
 *
 * Threads. The engine (tt__messages) is guarded by one lock, the world's: every function here is called with it held. Where there are TCP links, a
 * thread moves bytes, answers and heartbeats while nobody else does; tt__messages_wait() takes over from it, so that a waiting caller
 * needs no wake-up of another thread. Without TCP links there is no thread and no descriptor.
 *
 * Who completes a message: tt__message_send() and tt__message_recv() themselves, tt__messages_progress() and tt__messages_wait(), in whatever thread
 * runs them, or tt__message_cancel(); exactly once. */
#ifndef TT_COMM_MESSAGE_H
#define TT_COMM_MESSAGE_H

#include "comm/record/record.h"
#include "comm/transport/ring.h"

#include <tutti/backend.h>

#include <pthread.h>
#include <stdatomic.h>

enum { TT__EAGER_MAX = 16 << 10, TT__EAGER_WINDOW = 1 << 20 };

/* Which message this is. For collectives `seq` and `step` make it unique; a send or receive has seq 0 and its tag as step. */
typedef struct tt__key {
    uint32_t group; /* id */
    uint32_t seq;   /* of the call in the group; 0: point to point */
    uint32_t step;  /* the algorithm's own numbering, or the tag */

    /* Not part of what is matched: */
    uint32_t word;   /* hash of the call's signature; a receive whose message has another ends with TT_ERR_MISMATCH */
    uint32_t record; /* number of a send's or receive's call in its process's recorder, for error texts; 0: not told */
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
    tt_status status; /* TT_OK; TT_ERR_MISMATCH word or size differ; TT_ERR_PEER link ended; TT_ERR_ABORTED cancelled */
    int source;       /* of a receive: who sent */
    size_t got;       /* of a mismatch: the bytes that the sender has, */
    uint32_t got_word, got_record; /* and its word and record */
    /* The engine's own. */
    struct tt__message *next, *previous;
    size_t moved;
    uint32_t id, peer_id;
    uint8_t phase, is_recv;
} tt__message;

typedef struct tt__messages tt__messages;

/* Post. Never waits, never fails: what goes wrong is the message's status. */
void tt__message_send(tt__messages *messages, tt__message *message);
void tt__message_recv(tt__messages *messages, tt__message *message);

/* Take a message that is not done back: it is done then, with `status`. What the peer already sent for it is dropped when it comes. */
void tt__message_cancel(tt__messages *messages, tt__message *message, tt_status status);

/* `group` is destroyed: what was sent to it and never received is dropped, and its senders' windows are given back; so is what still comes. */
void tt__messages_forget(tt__messages *messages, uint32_t group);

/* `group` is made. Names come again after a million groups. */
void tt__messages_expect(tt__messages *messages, uint32_t group);

/* Move what can be moved without waiting. Returns whether anything happened. */
bool tt__messages_progress(tt__messages *messages);

/* Sleep until something happens on a TCP link, or `ms` have passed; releases the lock meanwhile. Only where there are TCP links. */
void tt__messages_wait(tt__messages *messages, int64_t ms);

/* End the sleep of whoever is in tt__messages_wait(). */
void tt__messages_wake(tt__messages *messages);

/* The caller goes away (returns to the program) while messages or works are under way: the thread takes over. Cheap; does nothing without TCP links. */
void tt__messages_leave(tt__messages *messages);

/* Are there TCP links? Then there is a thread, too. */
bool tt__messages_threaded(const tt__messages *messages);

/* ---- news of ranks that a TCP link joins, which say them when they happen */

typedef enum tt__news { TT__NEWS_LEFT, TT__NEWS_FAILED, TT__NEWS_ABORTED } tt__news;

/* Tell those among `ranks` that a TCP link joins: this rank left `group`, failed or aborted it, after call `seq`. */
void tt__news_send(tt__messages *messages, uint32_t group, const int *ranks, int count, tt__news news, tt_status status,
                   uint32_t seq, const char *text);

/* What such a rank said last about a group: true, and the rest filled in, if it left, failed or aborted. */
bool tt__news_of(tt__messages *messages, int rank, uint32_t group, tt__news *news, tt_status *status, uint32_t *seq,
                 char *text, size_t size);

/* Is the link to `rank` alive? TT_ERR_PEER, recorded: "rank 3 (host b, 10.0.0.2:4711) is gone; its connection to rank 0 ended: ...", or "rank 3 (host b,
 * 10.0.0.2:4711) has been silent for 3750 ms: it is frozen, or the network between is cut". TT_OK where there is no TCP link: see failure.c. */
tt_status tt__link_check(tt__messages *messages, int rank);

/* Is there a TCP link to `rank` on which nothing has come for too long? */
bool tt__link_silent(tt__messages *messages, int rank);

/* The TCP link to `rank` ended, and not because either said goodbye or broke the protocol: the process behind it is gone. */
bool tt__link_is_gone(const tt__messages *messages, int rank);

/* What rank `rank` waits for, as of its last heartbeat; false if for nothing. group, seq, whom: as in tt__waiting. */
bool tt__remote_waiting(tt__messages *messages, int rank, uint32_t *group, uint32_t *seq, int *whom, uint32_t *record);

/* What this rank waits for, or that it does not any more, may have changed: tell the others, if it has waited for more than a moment, and every now and
 * then while it does. */
void tt__tell_waiting(tt__messages *messages);

/* A call of this key's group, seq and word begins: hear_word() tells of what ranks have sent for another one already. */
void tt__messages_compare(tt__messages *messages, const int *ranks, int count, const tt__key *key);

/* This host's realtime minus that of `rank`'s host, in ns, from the fastest exchange so far; false while there was none. */
bool tt__clock_offset(tt__messages *messages, int rank, int64_t *offset_ns);

/* Ask rank `rank` what it called as number `seq` of `group`; its text, or false if it has not come so far or does not answer within `ms`.
 * Releases the lock meanwhile. For error texts. */
bool tt__ask_call(tt__messages *messages, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms);

/* The same of a send or receive, by its record's number. */
bool tt__ask_record(tt__messages *messages, int rank, uint32_t group, uint32_t record, char *text, size_t size,
                    int64_t ms);

/* ---- life */

/* What the engine asks of the rest of comm. `world` is handed back. Called with the lock held; none may wait. */
typedef struct tt__messages_config {
    int rank, size;
    int64_t heartbeat_ms;
    pthread_mutex_t *lock;
    void *world;
    const char *const *hostnames; /* (size), borrowed; NULL: unknown */

    /* Advance the works of the process; after how many ms it wants to be called again though no message came, -1: not at all. The thread
     * calls it after each progress. May be NULL. */
    int64_t (*advance)(void *world);

    /* What this rank called as number `seq` of `group`: its text and word, or false. May be NULL. */
    bool (*call_text)(void *world, uint32_t group, uint32_t seq, char *text, size_t size, uint32_t *word);

    /* The text of this rank's send or receive in `group` with this record, or false. May be NULL. */
    bool (*record_text)(void *world, uint32_t group, uint32_t record, char *text, size_t size);

    /* A rank has called something with this word as number `seq` of `group`; told of messages that have no receive, and of ranks that wait.
     * May be NULL. */
    void (*hear_word)(void *world, uint32_t group, uint32_t seq, uint32_t word);

    /* What this rank waits for, told with heartbeats. May be NULL. */
    const tt__waiting *waiting;

    /* Rings, for ranks that share memory with this one; NULL where there are none.
     * ring_peer: a rank's number on this host (0..63), its memory and its ring board; false if it is not local. Also asked of this rank itself.
     * ring_memory: `bytes` of this rank's memory, zeroed, for as long as the world lives; where it lies from the base on.
     * wake: end a sleep of rank's on its doorbell, if it sleeps. */
    bool (*ring_peer)(void *world, int rank, int *number, unsigned char **base, size_t *bytes, tt__ring_board **board);
    tt_status (*ring_memory)(void *world, size_t bytes, uint64_t *offset);
    void (*wake)(void *world, int rank);
} tt__messages_config;

/* An engine without links. `config` is copied. */
tt_status tt__messages_new(tt__messages **out, const tt__messages_config *config);

/* Before the ranks meet: bind a listening socket, and describe how this process is reached, in one token without spaces, for the card.
 * `only_local`: all ranks are on this host, loopback addresses will do. */
enum { TT__ADDRESSES_SIZE = 768 };
tt_status tt__messages_listen(tt__messages *messages, bool only_local, char addresses[TT__ADDRESSES_SIZE]);

/* Make TCP links to all ranks r with addresses[r] not NULL (the own is ignored), prove to each other who is who, and start the thread. The lock must not be
 * held. Errors: TT_ERR_NET which ranks can't reach each other and by which addresses was tried, TT_ERR_AUTH, TT_ERR_TIMEOUT, TT_ERR_PEER. */
tt_status tt__messages_open(tt__messages *messages, const char *const *addresses, int64_t deadline_ms);

/* Leave: end the thread, say goodbye on every link, close everything and free the engine. Never waits long. The lock must not be held. Posted messages
 * that are not done are forgotten. NULL is allowed. A forked child gives `quietly`: nothing is said. */
void tt__messages_close(tt__messages *messages, bool quietly);

#endif
