/* The message engine from inside: links, what travels on them, what waits on them.
 *
 *   frame    a header of 48 bytes and what follows it. Every byte on a link belongs to one
 *   posted   a receive that has no message yet
 *   arrival  a message, or the announcement of one, that has no receive yet
 *   ready    a receiver's word that it waits for a message which was not posted here yet
 *   credit   bytes of the eager window that the receiver has given back; travels in every header
 *
 * Files: messages.c life, progress and waiting; post.c what posting does; match.c receives and arrivals find each other; outgoing.c and incoming.c
 * move bytes; frames.c what each incoming frame means; thread.c; beat.c heartbeats, news and questions; open.c TCP links. */
#ifndef TT_COMM_MESSAGE_ENGINE_H
#define TT_COMM_MESSAGE_ENGINE_H

#include "base/bytes.h"
#include "comm/message/message.h"
#include "net/stream.h"

#include <sys/types.h>
#include <sys/uio.h>

typedef enum tt__frame_type {
    TT__FRAME_EAGER = 1, /* key; `bytes` of data follow */
    TT__FRAME_ANNOUNCE,  /* key, id of the send, its bytes; other: the receive that gets it, if it is ready, or 0 */
    TT__FRAME_READY,     /* key, id of the receive, its bytes; other: the send that was announced, 0 if none was */
    TT__FRAME_DATA,      /* other: the receive; `bytes` of data follow */
    TT__FRAME_REFUSE,    /* a message will not be: see TT__REFUSE_... */
    TT__FRAME_CREDIT,
    TT__FRAME_BEAT,   /* tt__beat */
    TT__FRAME_NEWS,   /* tt__news_body, text */
    TT__FRAME_ASK,    /* id; of the key group and seq, or, seq 0, group and record */
    TT__FRAME_ANSWER, /* id; flags 1: known, then word of the key, text */
    TT__FRAME_GOODBYE,
    TT__FRAMES
} tt__frame_type;

/* flags of REFUSE. id: the message of who says it; other: the message it is about, 0 if unknown; key and bytes: of who says it. */
enum {
    TT__REFUSE_RECEIVE = 1 /* it is about a receive; else about a send */,
    TT__REFUSE_MISMATCH = 2 /* else: cancelled */
};

typedef struct tt__frame {
    uint16_t magic;
    uint8_t type, flags;
    uint32_t credit;
    tt__key key;
    uint32_t id, other, unused;
    uint64_t bytes;
} tt__frame;

_Static_assert(sizeof(tt__frame) == 48, "the header has no padding");

enum {
    TT__FRAME_MAGIC = 0x5474,
    TT__CHUNK = 256 << 10,      /* data of one DATA frame at most, so that others get their turn */
    TT__CONTROL_MAX = 1024,     /* what follows the header of the other frames, at most */
    TT__READ_AHEAD = 64 << 10,  /* read from a socket at a time */
    TT__EAGER_COST = 64,        /* of an eager message beside its bytes: so small ones count, too */
    TT__ARRIVALS_MAX = 1 << 20, /* announcements, or readies, of one link that nobody asked for */
    TT__FORGOTTEN = 1024,       /* a power of two */
};

typedef struct tt__beat {
    int64_t sent_ns;             /* realtime of the sender, */
    int64_t echo_ns, echo_at_ns; /* that of the last beat it had received, and when it had; 0: none yet */
    uint32_t group, seq, record; /* what it waits for */
    int32_t whom;
    uint32_t word;  /* of the call's signature */
    uint32_t waits; /* 0: for nothing */
} tt__beat;

typedef struct tt__news_body {
    uint32_t group, seq;
    int32_t news, status;
} tt__news_body;

typedef struct tt__message_list {
    tt__message *first, *last;
} tt__message_list;

typedef struct tt__arrival {
    struct tt__arrival *next;
    tt__key key;
    uint64_t bytes;
    uint32_t id; /* of the announced send; 0: eager, the data are here */
    uint32_t room;
    unsigned char data[];
} tt__arrival;

typedef struct tt__readiness {
    struct tt__readiness *next;
    tt__key key;
    uint64_t bytes;
    uint32_t id;
} tt__readiness;

typedef struct tt__heard_news {
    struct tt__heard_news *next;
    tt__news_body body;
    char text[];
} tt__heard_news;

typedef struct tt__link tt__link;

/* How bytes move. send, recv: how many did, at once; 0: none now; -1: the link has ended, and link->why says how. */
typedef struct tt__link_ops {
    bool reads_ahead; /* a read costs as much as copying what comes with it */
    ssize_t (*send)(tt__link *link, const struct iovec *parts, int count);
    ssize_t (*recv)(tt__link *link, const struct iovec *parts, int count);
    void (*close)(tt__link *link);
} tt__link_ops;

struct tt__link {
    const tt__link_ops *ops; /* NULL: to this rank itself */
    tt__messages *messages;
    tt__link *next; /* in messages->active */
    int peer;
    bool tcp, ended;
    bool left;        /* the peer has said goodbye */
    bool broken;      /* nothing can be written any more */
    tt_status status; /* if ended */
    char why[128];
    char where[80]; /* the peer's address */

    /* Transport. */
    tt__stream stream;
    tt__ring *ring_out, *ring_in;
    uint64_t ring_written, ring_read; /* the own counters, which peers only read */
    uint64_t ring_head_seen;
    bool wants_write; /* epoll watches for room */

    /* Outgoing. `out`: frames (but DATA) that are not yet written, from out_at on. A chunk is one DATA frame of the first message of `sending`. */
    tt__bytes out;
    size_t out_at;
    tt__message_list announced, sending;
    tt__message *chunk;     /* NULL: none prepared */
    tt__frame chunk_header; /* written: chunk_sent of header and data */
    size_t chunk_sent, chunk_bytes;
    tt__readiness *readies, **readies_end;
    uint32_t ready_count;
    uint32_t eager_out; /* sent and not yet given back */
    uint32_t credit;    /* to be given back */

    /* Incoming. */
    unsigned char *in;
    size_t in_at, in_end, in_room;
    bool in_payload;
    bool drained;    /* the last read brought less than it could */
    tt__frame frame; /* whose payload comes */
    unsigned char *into;
    size_t left_bytes;      /* of the payload */
    tt__message *receiving; /* DATA, EAGER: the receive; NULL: nobody's */
    tt__arrival *keeping;   /* EAGER: nobody has asked yet */
    unsigned char control[TT__CONTROL_MAX];
    tt__message_list posted, arriving;
    tt__arrival *arrivals, **arrivals_end;
    uint32_t arrival_count, eager_in; /* eager_in: bytes that the peer counts and we have not given back */

    /* Life. */
    int64_t heard_ms;
    tt__beat beat; /* the last; sent_ns 0: none */
    int64_t beat_at_ns;
    int64_t offset_ns, round_trip_ns; /* of the fastest exchange; round_trip_ns 0: none */
    tt__heard_news *news;
};

typedef struct tt__question {
    struct tt__question *next;
    uint32_t id;
    bool answered, known;
    uint32_t word;
    char text[TT__CONTROL_MAX + 1];
} tt__question;

struct tt__messages {
    tt__messages_config config;
    tt__link **links; /* (size); NULL: none yet */
    tt__link *active; /* all but that to itself */
    int tcp_links, ring_links;
    tt__message_list any; /* posted receives from any source */
    uint32_t last_id;
    uint32_t open;      /* messages that are not done */
    uint32_t completed; /* messages done so far */
    tt__arrival *spare;
    uint32_t spare_count;
    tt__question *questions;
    unsigned char *discard; /* where unwanted bytes go */
    /* Groups that have ended here, plus 1, by hash; a later one may take the place of an earlier. What comes for one that is not there any more
     * is kept as if the group were still to come. */
    uint32_t forgotten[TT__FORGOTTEN];
    tt__ring_board *board; /* this rank's, and its number on the host; NULL: not asked for yet */
    int number;

    /* Between threads. */
    int epoll, poke; /* -1: no TCP links */
    int listener;
    struct tt__attempt *unfinished; /* of a joining that failed: closed with all else, when the reason has been told */
    uint8_t nonce[TT__JOB_SIZE];    /* in our address token: who knows it has read the store */
    char addresses[TT__ADDRESSES_SIZE]; /* that token */
    tt__tls *tls;
    pthread_t thread;
    bool has_thread, stop;
    bool thread_polls, polling; /* who is in epoll_wait: the thread; a caller */
    bool thread_acts;           /* the thread advances works: its looks at the links are no caller's */
    int callers;                /* threads in tt__messages_wait() */
    bool handed_over;           /* the last caller went away with something under way */
    int64_t polled_ms, now_ms, beat_due_ms, looked_ms;
    int64_t waits_ms, told_ms; /* since when this rank waits, and when the others were last told so; 0: not */
    pthread_cond_t changed, thread_wanted;
};

/* ---- lists */

static inline void tt__list_append(tt__message_list *list, tt__message *m) {
    m->next = NULL;
    m->previous = list->last;
    if (list->last)
        list->last->next = m;
    else
        list->first = m;
    list->last = m;
}

static inline void tt__list_remove(tt__message_list *list, tt__message *m) {
    if (m->previous)
        m->previous->next = m->next;
    else
        list->first = m->next;
    if (m->next)
        m->next->previous = m->previous;
    else
        list->last = m->previous;
    m->next = m->previous = NULL;
}

/* Where a message stands; tt__message.phase. */
enum {
    TT__PHASE_DONE,
    TT__PHASE_POSTED,    /* receive: in link->posted, or messages->any */
    TT__PHASE_READY,     /* receive: likewise in link->posted, and the sender was told */
    TT__PHASE_ARRIVING,  /* receive: in link->arriving */
    TT__PHASE_ANNOUNCED, /* send: in link->announced */
    TT__PHASE_SENDING    /* send: in link->sending */
};

/* So large that it is never sent unasked. */
static inline bool tt__is_large(const tt__message *m) { return m->bytes > TT__EAGER_MAX; }

static inline bool tt__same_key(const tt__key *a, const tt__key *b) {
    return a->group == b->group && a->seq == b->seq && a->step == b->step;
}

/* Ranks are in the same collective and disagree on what it is. */
static inline bool tt__contradicts(const tt__key *a, const tt__key *b) {
    return a->seq && a->seq == b->seq && a->group == b->group && a->word != b->word;
}

/* ---- messages.c */

/* The link to `peer`, made if it is a ring or leads to this rank; NULL, recorded, if there can't be one. */
tt__link *tt__link_to(tt__messages *messages, int peer);

/* A link without transport yet, in messages->links and ->active. NULL: no memory, recorded. */
tt__link *tt__link_new(tt__messages *messages, int peer, const tt__link_ops *ops);

/* The link is over: everything on it ends with `status`. */
void tt__link_end(tt__link *link, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* The message is complete; it is in no list any more. */
void tt__message_done(tt__messages *messages, tt__message *message, tt_status status);

/* A TCP link for a connected stream (taken; closed on failure). `where`: the peer's address. */
tt_status tt__link_add_tcp(tt__messages *messages, int peer, tt__stream stream, const char *where);

/* ---- outgoing.c */

/* Send a frame whose body is `bytes` at `body`: at once or, what the link does not take, later. */
void tt__send_frame(tt__link *link, tt__frame *frame, const void *body, size_t bytes);

/* The same of a frame without body, with whatever is written next. */
void tt__queue_frame(tt__link *link, tt__frame *frame);

/* Write what waits to be written; whether anything was. */
bool tt__link_flush(tt__link *link);

/* The receiver of `message` has said ready under this id: its data may go. */
void tt__begin_sending(tt__link *link, tt__message *message, uint32_t receive_id);

/* Take a message out of `sending`, whatever of it was written. */
void tt__stop_sending(tt__link *link, tt__message *message);

void tt__refuse(tt__link *link, int flags, const tt__message *own, uint32_t other);

/* Something waits to be written. */
bool tt__link_wants_write(const tt__link *link);

/* `bytes` of an eager message are ours no more: give the sender's window back. */
void tt__give_back(tt__link *link, uint64_t bytes);

/* ---- incoming.c, frames.c */

/* Read and act on what has come; whether anything has. */
bool tt__link_pump(tt__link *link);

/* A whole header has come. Sets link->into and what else the payload needs; false: the link was ended. */
bool tt__frame_begin(tt__link *link);

/* Its payload has come, too. */
void tt__frame_end(tt__link *link);

/* ---- match.c */

/* The first message of the list with this key, or NULL. */
tt__message *tt__first_for(const tt__message_list *list, const tt__key *key);

/* The posted receive for a message with this key from link->peer, taken out of its list and put into link->arriving; NULL: none. Receives of the
 * same collective under another word end with a mismatch. */
tt__message *tt__match_receive(tt__link *link, const tt__key *key, uint64_t bytes);

/* The posted or arriving receive with this id, or NULL. */
tt__message *tt__find_receive(tt__link *link, uint32_t id);

/* An announced or sending message with this id, or NULL. */
tt__message *tt__find_send(tt__link *link, uint32_t id);

/* The oldest arrival for this receive, taken out; NULL: none. *link: where it came. */
tt__arrival *tt__match_arrival(tt__messages *messages, const tt__message *receive, tt__link **link);

/* A record for an arrival with room for `bytes`, or NULL. */
tt__arrival *tt__arrival_new(tt__messages *messages, const tt__key *key, uint64_t bytes, uint32_t id);
void tt__arrival_keep(tt__link *link, tt__arrival *arrival);
void tt__arrival_free(tt__messages *messages, tt__arrival *arrival);

/* Take *at out of its link's list, and free it. */
void tt__arrival_drop(tt__link *link, tt__arrival **at);
void tt__ready_drop(tt__link *link, tt__readiness **at);

/* Keep a receiver's word for later. */
void tt__ready_keep(tt__link *link, const tt__frame *frame);

/* Has the group ended here? */
bool tt__is_forgotten(const tt__messages *messages, uint32_t group);

/* End a receive or send with TT_ERR_MISMATCH: the other side has `key` and `bytes`. */
void tt__mismatch(tt__messages *messages, tt__message *message, const tt__key *key, uint64_t bytes);
bool tt__fits(const tt__message *message, const tt__key *key, uint64_t bytes);

/* ---- open.c */

/* Nobody calls or is called any more. */
void tt__messages_stop_joining(tt__messages *messages);

/* ---- post.c */

/* The receive, which is in no list, is for the announced message `send_id`. */
void tt__answer_announcement(tt__link *link, tt__message *message, uint32_t send_id);

/* It is, but they differ: both end. */
void tt__refuse_announcement(tt__link *link, tt__message *message, uint32_t send_id, const tt__key *key,
                             uint64_t bytes);

/* Serve the links that epoll names, waiting at most `wait_ms`; serve all rings. Whether anything happened. */
bool tt__serve_events(tt__messages *messages, int64_t wait_ms);
bool tt__serve_rings(tt__messages *messages);

/* ---- thread.c */

/* Have epoll watch for room to write while something waits to be written. Does nothing for rings. */
void tt__link_watch(tt__link *link);

void tt__poke(tt__messages *messages);
void tt__poke_taken(tt__messages *messages);

/* Sleep in epoll, or until `condition` is told; the first without the lock. */
void tt__sleep_on_links(tt__messages *messages, int64_t ms);
void tt__wait_for_change(tt__messages *messages, pthread_cond_t *condition, int64_t ms);

/* Something was completed: wake other callers that sleep; `sleepers` of them in any case. */
void tt__tell_waiters(tt__messages *messages, int sleepers);

/* Make what watches the links, if it is not there yet. */
tt_status tt__links_watch(tt__messages *messages);

tt_status tt__thread_start(tt__messages *messages);
void tt__thread_stop(tt__messages *messages);

/* ---- beat.c */

/* Say what is due; returns the moment when the next is. */
int64_t tt__beats(tt__messages *messages, int64_t now_ms);
void tt__hear_beat(tt__link *link, const tt__beat *beat);
void tt__hear_news(tt__link *link, const void *body, size_t bytes);
void tt__hear_question(tt__link *link);
void tt__hear_answer(tt__link *link, size_t bytes);
void tt__news_free(tt__link *link);

/* Tell all that this rank leaves, and see to it that what was sent reaches them. */
void tt__say_goodbye(tt__messages *messages);

/* ---- transport/tcp.c, transport/ring.c */

extern const tt__link_ops tt__tcp_ops, tt__ring_ops;

/* Make the ring from this rank to link->peer, of the same host. */
tt_status tt__ring_open(tt__link *link);

/* Links for rings that others have made to us since the last look. Whether there were any. */
bool tt__rings_look(tt__messages *messages);

#endif
