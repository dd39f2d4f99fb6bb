/* Messages between ranks: algorithms between hosts, sends and receives are made of them.
 *
 * A message goes from one rank of the job to another under a key; a posted receive takes the first message that
 * fits. Bytes move over a link to each peer: a TCP connection or a pair of rings in shared memory (transport/);
 * nothing above this header knows which.
 *
 *   small (up to TT__EAGER_MAX)  The header and the data are sent at once. A receiver that has not asked yet keeps a
 *                                copy, up to TT__EAGER_WINDOW bytes for each peer, which the sender counts; beyond that
 *                                small messages are sent as large ones are.
 *   large                        The sender announces the message, the receiver answers "ready", then the data are
 *                                sent, straight to where they belong. A receiver that knows which message will be its
 *                                own sends "ready" when it posts, and a sender that has it needs not announce. Keys of
 *                                collectives are unique; of large sends and receives with one tag the first belongs to
 *                                the first, unless a receive from any source comes between.
 *
 * Thus nobody buffers more than the window, and no message without a receive stands in the way of others.
 *
 * Threads. The engine (tt__messages) is guarded by one lock, the world's; every function here is called with it held
 * unless it says otherwise. Where there are TCP links, a thread moves bytes, answers and heartbeats while no caller
 * does; tt__messages_wait() takes over from it, so that a waiting caller needs no wake-up by another thread. Without
 * TCP links there is no thread and no descriptor.
 *
 * Completion. A message completes exactly once: in tt__message_send() or tt__message_recv() itself, in
 * tt__messages_progress() or tt__messages_wait() in whatever thread runs them, or in tt__message_cancel(). */
#ifndef TT_COMM_MESSAGE_H
#define TT_COMM_MESSAGE_H

#include "comm/message/transport/ring.h"
#include "comm/rankset.h"
#include "comm/record/recorder.h"

#include <tutti/backend.h>

#include <pthread.h>
#include <stdatomic.h>

enum { TT__EAGER_MAX = 64 << 10, TT__EAGER_WINDOW = 1 << 20 };

/* A message's name. For collectives `seq` and `step` make it unique; a send or receive has seq 0 and its tag as
 * step. */
typedef struct tt__key {
    uint32_t group; /* id */
    uint32_t seq;   /* of the call in the group; 0: point to point */
    uint32_t step;  /* the algorithm's own numbering, or the tag */

    /* Not part of what is matched: */
    uint32_t word;   /* hash of the call's signature; a receive whose message has another ends with TT_ERR_MISMATCH */
    uint32_t record; /* number of a send's or receive's call in its process's recorder, for error texts; 0: none */
} tt__key;

/* One message on its way; the poster keeps this memory until `done`. Zero it, then fill in the first part. */
typedef struct tt__message {
    tt__key key;
    int peer; /* rank in the job; TT_ANY_SOURCE */
    void *data;
    size_t bytes;
    bool asked_for;            /* sent only when it is asked for, however small; the same on both sides */
    _Atomic uint32_t *pending; /* counted down when the message is done; may be NULL */

    /* Results. */
    bool done;
    tt_status status; /* TT_OK; TT_ERR_MISMATCH word or size differ; TT_ERR_PEER link ended; TT_ERR_ABORTED cancelled */
    int source;       /* of a receive: who sent */
    size_t got;       /* of a mismatch: bytes of the other side's message */
    uint32_t got_word, got_record; /* of a mismatch: its word and record */
    /* The engine's own. */
    struct tt__message *next, *previous;
    size_t moved;
    uint32_t id, peer_id;
    uint8_t state, is_recv;
} tt__message;

typedef struct tt__messages tt__messages;

/* Post a message. Never waits, never fails: an error is the message's status. */
void tt__message_send(tt__messages *messages, tt__message *message);
void tt__message_recv(tt__messages *messages, tt__message *message);

/* End a message that is not done, with `status`. What the peer already sent for it is dropped when it comes. */
void tt__message_cancel(tt__messages *messages, tt__message *message, tt_status status);

/* Forget a group that is destroyed: drop messages that were never received, and those that still come, and give the
 * senders' windows back. */
void tt__messages_forget(tt__messages *messages, uint32_t group);

/* Accept messages for a new group. Its id may have been used before: ids come again after a million groups. */
void tt__messages_expect(tt__messages *messages, uint32_t group);

/* Move what can be moved without waiting. Returns whether anything happened. */
bool tt__messages_progress(tt__messages *messages);

/* Sleep until something happens on a TCP link, or for `ms`; releases the lock meanwhile. Returns at once where there
 * are no TCP links. */
void tt__messages_wait(tt__messages *messages, int64_t ms);

/* Wake all callers of tt__messages_wait(). */
void tt__messages_wake(tt__messages *messages);

/* Let the thread take over: the caller returns to the program while messages or works are under way. Cheap; does
 * nothing without TCP links. */
void tt__messages_leave(tt__messages *messages);

/* The same for a caller that may wait or look again at once: the thread takes over after a millisecond without that. */
void tt__messages_leave_soon(tt__messages *messages);

/* Is there a thread, that is, are there TCP links? */
bool tt__messages_threaded(const tt__messages *messages);

/* Name how bytes travel over the TCP links: "plain", "sealed" or "tls"; "none" where there are none. */
const char *tt__messages_wire(const tt__messages *messages);

/* ---- packets: up to TT__PACKET_MAX bytes for one receiver in the other process (today src/rpc), which gets them in
 * order. No window limits them, so the sender must bound how many are under way. */

enum { TT__PACKET_MAX = 64 << 10 };

/* The receiver's functions, which are called with the lock held.
 *
 *   room  Return memory for a packet of `bytes` that is about to come from `peer`; NULL: there is none, and the link
 *         ends.
 *   take  Take the packet, which has come, in the memory of room().
 *   drop  Free the memory of room(): the link ended before the packet was complete. */
typedef struct tt__packet_taker {
    void *(*room)(void *user, int peer, size_t bytes);
    void (*take)(void *user, int peer, void *room, size_t bytes);
    void (*drop)(void *user, void *room);
} tt__packet_taker;

/* Set the receiver of packets from now on; NULL: packets are dropped. A packet that is half received is dropped. */
void tt__messages_take_packets(tt__messages *messages, const tt__packet_taker *taker, void *user);

/* Send a packet. Bytes that the link can't take at once are copied. Errors: the one with which the link ended. */
tt_status tt__packet_send(tt__messages *messages, int peer, const void *data, size_t bytes);

/* Return how many bytes wait to be written to `peer`. */
size_t tt__unsent_bytes(const tt__messages *messages, int peer);

/* ---- news of ranks that a TCP link joins */

typedef enum tt__news { TT__NEWS_LEFT, TT__NEWS_FAILED, TT__NEWS_ABORTED } tt__news;

/* Tell the `ranks` behind TCP links that this rank left, failed or aborted `group` after call `seq`. */
void tt__news_send(tt__messages *messages, uint32_t group, const int *ranks, int count, tt__news news, tt_status status,
                   uint32_t seq, const char *text);

/* Has a rank behind a TCP link left, failed or aborted the group? If true, the rest is filled in from its
 * announcement. */
bool tt__news_of(tt__messages *messages, int rank, uint32_t group, tt__news *news, tt_status *status, uint32_t *seq,
                 char *text, size_t size);

/* Is the link to `rank` alive? TT_OK where there is no TCP link (failure detection on one host is another).
 * TT_ERR_PEER, recorded: "rank 3 (host b, 10.0.0.2:4711) is gone; its connection to rank 0 ended: ...", or "rank 3
 * (host b, 10.0.0.2:4711) has been silent for 3750 ms: it is frozen, or the network between is cut". */
tt_status tt__link_check(tt__messages *messages, int rank);

/* Has the TCP link to `rank` been silent for too long? */
bool tt__link_silent(tt__messages *messages, int rank);

/* Is the process behind the TCP link to `rank` gone? True if the link ended without a goodbye and without a breach
 * of the protocol. */
bool tt__link_is_gone(const tt__messages *messages, int rank);

/* Return what rank `rank` waited for at its last heartbeat; false: nothing. group, seq, whom: as in tt__waiting. */
bool tt__remote_waiting(tt__messages *messages, int rank, uint32_t *group, uint32_t *seq, int *whom, uint32_t *record);

/* Announce what this rank waits for, or that it waits no more. Sends something only after a wait of more than a moment,
 * and then regularly. */
void tt__announce_waiting(tt__messages *messages);

/* A call with this key's group, seq and word begins: compare it with what ranks have sent already, and call on_word()
 * with words that differ. */
void tt__messages_compare(tt__messages *messages, const int *ranks, int count, const tt__key *key);

/* Ask rank `rank` what it called as number `seq` of `group`, for error texts. False: it has made no such call yet, or
 * does not answer within `ms`. Releases the lock meanwhile. */
bool tt__ask_call(tt__messages *messages, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms);

/* Is it certain that the rank has not made that call, and can't make it while it waits? Asks it; false also without an
 * answer within `ms`. Releases the lock meanwhile. */
bool tt__ask_not_called(tt__messages *messages, int rank, uint32_t group, uint32_t seq, int64_t ms);

/* Ask the same as tt__ask_call() of a send or receive, by the number of its record. */
bool tt__ask_record(tt__messages *messages, int rank, uint32_t group, uint32_t record, char *text, size_t size,
                    int64_t ms);

/* ---- life */

/* What the engine needs of the rest of comm. Functions get `world`, are called with the lock held, and must not
 * wait. */
typedef struct tt__messages_config {
    int rank, size;
    int64_t heartbeat_ms;
    pthread_mutex_t *lock;
    void *world;
    const char *const *hostnames; /* (size), borrowed; NULL: unknown */

    /* Where peers are workers with names: return a peer's name, and its host; NULL: not known. What it returns is used
     * before anything else is called. NULL: peers are ranks. */
    const char *(*peer_name)(void *world, int peer, const char **host);

    /* Advance the works of the process; the thread calls it after each progress. Returns after how many ms to call
     * it again even if no message comes, -1: not at all. May be NULL. */
    int64_t (*advance)(void *world);

    /* Return the text and word of what this rank called as number `seq` of `group`; false: nothing. May be NULL. */
    bool (*call_text)(void *world, uint32_t group, uint32_t seq, char *text, size_t size, uint32_t *word);

    /* May this rank, though it waits, make a call on `group` in another thread? May be NULL: no. */
    bool (*may_call)(void *world, uint32_t group);

    /* Return the text of this rank's send or receive in `group` with this record; false: there is none. May be NULL. */
    bool (*record_text)(void *world, uint32_t group, uint32_t record, char *text, size_t size);

    /* Learn that a rank called something with this word as number `seq` of `group`: from messages that have no receive,
     * and from ranks that wait. May be NULL. */
    void (*on_word)(void *world, uint32_t group, uint32_t seq, uint32_t word);

    /* What this rank waits for; heartbeats carry it. May be NULL. */
    const tt__waiting *waiting;

    /* Where to write this host's realtime minus that of rank 0's host, in ns, as the fastest exchange of heartbeats
     * says; untouched while there was none, and on rank 0's host. May be NULL. */
    _Atomic int64_t *offset_ns;

    /* The thread has advanced works: run what must run without the lock. Called with the lock held; releases and
     * retakes it. May be NULL. */
    void (*unlocked)(void *world);

    /* While links are made: fail if joining has failed elsewhere, or one of these ranks, to which there is no link yet,
     * has ended. Called now and then. May be NULL. */
    tt_status (*joining_look)(void *world, const tt__rankset *absent);

    /* Rings, for ranks that share memory with this one; NULL where there are none.
     *
     *   ring_peer    Return a rank's number on this host (0..63), its memory and its ring board; false: it is not
     *                local. Also called for this rank itself.
     *   ring_memory  Take `bytes` of this rank's memory, zeroed, for as long as the world lives; *offset: where they
     *                lie in it.
     *   wake         Wake a rank that sleeps on its doorbell. */
    bool (*ring_peer)(void *world, int rank, int *number, unsigned char **base, size_t *bytes, tt__ring_board **board);
    tt_status (*ring_memory)(void *world, size_t bytes, uint64_t *offset);
    void (*wake)(void *world, int rank);
} tt__messages_config;

/* Make an engine without links. `config` is copied. */
tt_status tt__messages_new(tt__messages **out, const tt__messages_config *config);

/* Watch one more descriptor beside the links, once, for the life of the engine: whoever serves them calls `serve` when
 * it can be read, with the lock held; it returns whether anything happened. Starts the thread. */
tt_status tt__messages_watch(tt__messages *messages, int fd, bool (*serve)(void *user), void *user);

/* End the link to `peer` as lost, and free an ended one, so that nothing is known of it any more. Not while links are
 * served. */
void tt__link_lose(tt__messages *messages, int peer, const char *why);
void tt__link_forget(tt__messages *messages, int peer);

/* Bind a listening socket, and describe by which addresses this process is reached, in one token without spaces.
 * `only_local`: all ranks are on this host, so loopback addresses will do. */
enum { TT__ADDRESSES_SIZE = 768 };
tt_status tt__messages_listen(tt__messages *messages, bool only_local, char addresses[TT__ADDRESSES_SIZE]);

/* Make TCP links to all ranks r with addresses[r] not NULL (this rank's own is ignored), prove to each other who is
 * who, and start the thread. The lock must not be held. Errors: TT_ERR_NET which ranks can't reach each other, and
 * the addresses that were tried; TT_ERR_AUTH, TT_ERR_TIMEOUT, TT_ERR_PEER. */
tt_status tt__messages_open(tt__messages *messages, const char *const *addresses, int64_t deadline_ms);

/* End the thread, say goodbye on every link (unless `quietly`, as in a forked child), close everything and free the
 * engine. Waits at most half a second. The lock must not be held. Posted messages that are not done are forgotten.
 * NULL is allowed. */
void tt__messages_close(tt__messages *messages, bool quietly);

#endif
