/* The state of the message engine: its links and itself. message_parts.h has its files' functions; from below:
 *
 *   transport/    bytes to one peer: TCP, sealed or not, TLS, rings
 *   link.c        a link's life; a message's end; what came before it was asked for
 *   links.c       links to peers, made when they are needed; epoll over the TCP links, and waking its sleepers
 *   outgoing.c    frames are written
 *   match.c       receives and messages find each other; what comes for a group that has ended
 *   heartbeat.c   which peers live
 *   news.c        frames beside messages: news of groups, questions and answers, packets
 *   incoming.c    frames are read and handled
 *   post.c        messages are posted and cancelled
 *   progress.c    all links are served; callers wait; a question to a peer, and waiting for its answer
 *   thread.c      the engine's own thread
 *   joining/      TCP links are made when ranks join, or when they are needed
 *   messages.c    the engine's life
 *
 * A file calls those above it in this list only; what is below is reached by tt__messages_config's functions alone. */
#ifndef TT_COMM_MESSAGE_STATE_H
#define TT_COMM_MESSAGE_STATE_H

#include "base/bytes.h"
#include "comm/message/message.h"
#include "comm/message/transport/transport.h"

/* ---- what travels on a link: frames, each a header of 48 bytes and its payload. Both ends are of one version and byte
 * order. */

typedef enum tt__frame_type {
    TT__FRAME_EAGER = 1, /* key; `bytes` of data follow */
    TT__FRAME_ANNOUNCE,  /* key, id of the send, its bytes; other: the receive that gets it, if it is ready, or 0 */
    TT__FRAME_READY,     /* key, id of the receive, its bytes; other: the send that was announced, 0 if none was */
    TT__FRAME_DATA,      /* other: the receive; `bytes` of data follow */
    TT__FRAME_REFUSE,    /* a message will not be transferred: see TT__REFUSE_... */
    TT__FRAME_CREDIT,    /* only what every header carries */
    TT__FRAME_BEAT,      /* tt__beat follows */
    TT__FRAME_NEWS,      /* tt__news_body and a text follow */
    TT__FRAME_ASK,       /* id; of the key group and seq, or, with seq 0, group and record */
    TT__FRAME_ANSWER,    /* id; flags TT__ANSWER_...; if known, word of the key, and a text follows */
    TT__FRAME_GOODBYE,
    TT__FRAME_PACKET, /* `bytes` of a packet follow */
    TT__FRAMES
} tt__frame_type;

/* flags of REFUSE. id: the refusing rank's message; other: the message it is about, 0 if unknown; key and bytes: those
 * of the refusing rank's message. */
enum {
    TT__REFUSE_RECEIVE = 1, /* the message is a receive; else a send */
    TT__REFUSE_MISMATCH = 2 /* because they differ; else because it was cancelled */
};

/* flags of ANSWER */
enum {
    TT__ANSWER_KNOWN = 1,
    TT__ANSWER_MAY_CALL = 2 /* the rank waits, but another of its threads may still make the call */
};

typedef struct tt__frame {
    uint16_t magic;
    uint8_t type, flags;
    uint32_t credit; /* bytes of the eager window that the receiver gives back */
    tt__key key;
    uint32_t id, other, unused;
    uint64_t bytes;
} tt__frame;

enum {
    TT__FRAME_MAGIC = 0x5474,
    TT__CHUNK = 256 << 10,  /* data of one DATA frame at most, so that large messages take turns */
    TT__CONTROL_MAX = 1024, /* payload of the other frames at most */
    TT__EAGER_COST = 64,    /* of an eager message in the window, beside its bytes, so that small ones also count */
    TT__KEPT_MAX = 1 << 20  /* announcements, or readies, that are kept for one peer */
};

/* Payload of BEAT. Times are realtime, in ns. */
typedef struct tt__beat {
    int64_t sent_ns;
    int64_t echo_ns, echo_at_ns; /* sent_ns of the last beat received from the peer, and when it came; 0: none yet */
    uint32_t group, seq, record; /* what the sender waits for */
    int32_t whom;
    uint32_t word;  /* of the call's signature */
    uint32_t waits; /* 0: it waits for nothing */
} tt__beat;

/* Payload of NEWS, before its text. */
typedef struct tt__news_body {
    uint32_t group, seq;
    int32_t news, status;
} tt__news_body;

enum {
    TT__READ_AHEAD = 36 << 10, /* read where a header is expected: beyond that, copying costs more than reading again */
    TT__DISCARD = 128 << 10,   /* bytes that nobody wants, read at a time */
    TT__ENDED_GROUPS = 1024    /* a power of two */
};

typedef struct tt__message_list {
    tt__message *first, *last;
} tt__message_list;

/* tt__message.state: in which list a message is. */
enum {
    TT__MESSAGE_DONE,
    TT__MESSAGE_POSTED,    /* a receive that has no message yet: in link->posted, or messages->any */
    TT__MESSAGE_READY,     /* a receive in link->posted for which "ready" was sent */
    TT__MESSAGE_ARRIVING,  /* a receive that has its message: in link->arriving */
    TT__MESSAGE_ANNOUNCED, /* a send: in link->announced */
    TT__MESSAGE_SENDING    /* a send: in link->sending */
};

/* What a peer said last about one group. */
typedef struct tt__received_news {
    struct tt__received_news *next;
    tt__news_body body;
    char text[];
} tt__received_news;

typedef struct tt__link tt__link;

struct tt__link {
    tt__transport transport;
    tt__messages *messages;
    tt__link *next; /* in messages->active */
    int peer;
    int *count; /* the counter of links of this kind, decremented when this one is closed; or NULL */
    bool tcp;
    bool ended;       /* with `status` and `why` */
    bool broken;      /* nothing can be written; what the peer sent before is still read */
    tt_status status; /* if ended */
    char why[128];
    char where[80];   /* the peer's address */
    bool wants_write; /* epoll watches for room */

    /* Outgoing. `out`: frames, except DATA, not yet written, from out_at on. A chunk is one DATA frame of the first
     * message of `sending`. */
    tt__bytes out;
    size_t out_at;
    tt__message_list announced, sending;
    tt__message *chunk;     /* NULL: none prepared */
    tt__frame chunk_header; /* of header and data, chunk_sent bytes are written */
    size_t chunk_sent, chunk_bytes;
    struct tt__readiness *readies, **readies_end;
    uint32_t ready_count;
    uint32_t eager_out; /* bytes of the window that the peer has not given back */
    uint32_t credit;    /* bytes to be given back to the peer */

    /* Incoming. */
    unsigned char *in;
    size_t in_at, in_end, in_room;
    bool in_payload;
    bool drained;    /* the last read brought less than it could */
    tt__frame frame; /* the frame that is being received */
    unsigned char *into;
    size_t left_bytes;           /* of its payload, not yet received */
    tt__message *receiving;      /* of DATA and EAGER: the receive; NULL: there is none */
    struct tt__arrival *keeping; /* of EAGER: kept, since there is no receive */
    void *packet;                /* of PACKET: where it is received; NULL: it is dropped */
    unsigned char control[TT__CONTROL_MAX];
    tt__message_list posted, arriving;
    struct tt__arrival *arrivals, **arrivals_end;
    uint32_t arrival_count;
    uint32_t eager_in; /* bytes of the window that this side has not given back */

    /* Life. */
    int64_t received_ms; /* when something came last */
    tt__beat beat;       /* the last one; sent_ns 0: none */
    int64_t beat_at_ns;
    int64_t round_trip_ns; /* of the fastest exchange of heartbeats; 0: there was none */
    tt__received_news *news;
};

/* A question to a peer whose answer somebody waits for. */
typedef struct tt__question {
    struct tt__question *next;
    uint32_t id;
    bool answered, known, may_call;
    uint32_t word;
    char text[TT__CONTROL_MAX + 1];
} tt__question;

enum { TT__STAND_BACK_MS = 50 };

struct tt__messages {
    tt__messages_config config;
    tt__link **links; /* (size); NULL: none yet */
    tt__link *active; /* all except that to this rank itself */
    int tcp_links, ring_links;
    tt__message_list any; /* posted receives from any source */
    uint32_t last_id;
    uint32_t open;      /* messages that are not done */
    uint32_t completed; /* messages done so far */
    struct tt__arrival *free_arrivals;
    uint32_t free_arrival_count, free_arrival_bytes;
    tt__question *questions;
    const tt__packet_taker *packet_taker; /* NULL: nobody takes packets */
    void *packet_user;
    unsigned char *discard; /* where unwanted bytes go */
    const char *wire;       /* of the TCP links; NULL: there were none */
    /* Groups that have ended here, plus 1, by hash; a later one may overwrite an earlier one. Messages for a group that
     * was overwritten are kept as if the group were still to come. */
    uint32_t ended_groups[TT__ENDED_GROUPS];
    tt__ring_board *board; /* this rank's; `number` is its number on the host; NULL: not asked for yet */
    int number;

    /* Between threads. */
    int epoll, wakeup;                 /* wakeup: an eventfd in epoll's set. -1: there are no TCP links */
    bool (*serve_watched)(void *user); /* of tt__messages_watch(); NULL: nothing is watched */
    void *watched_user;
    int64_t watched_ms; /* when epoll, which also watches that descriptor, was last asked */
    int listener;
    struct tt__attempt *unfinished;     /* of a failed joining; closed with the engine, after the reason was reported */
    uint8_t nonce[TT__JOB_SIZE];        /* in this rank's address token: a peer that knows it has read the store */
    char addresses[TT__ADDRESSES_SIZE]; /* that token */
    tt__tls *tls;
    bool one_host; /* all ranks are on this machine */
    bool seals;    /* its connections are sealed */
    pthread_t thread;
    bool has_thread, stop;
    bool thread_polls, polling; /* the engine's thread is in epoll_wait(); a caller is */
    bool thread_acts;           /* the thread advances works, so reads of the links now are not a caller's */
    int callers;                /* threads in tt__messages_wait() */
    int64_t stand_back_ms;      /* for how long after polled_ms the thread leaves the links to callers */
    int64_t stands_until_ms;    /* until when the thread therefore sleeps; 0: it does not */
    int64_t polled_ms, now_ms, beat_due_ms, checked_ms;
    int64_t census_due_ms;          /* when to look whether the program's threads have ended */
    int64_t waits_ms, announced_ms; /* since when this rank waits; when that was last announced to the others; 0: not */
    pthread_cond_t changed, thread_wanted;
};

/* ---- lists of messages */

static inline void tt__message_list_append(tt__message_list *list, tt__message *m) {
    m->next = NULL;
    m->previous = list->last;
    if (list->last)
        list->last->next = m;
    else
        list->first = m;
    list->last = m;
}

static inline void tt__message_list_remove(tt__message_list *list, tt__message *m) {
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

/* Is it too large to be sent before the receiver asks for it? */
static inline bool tt__is_large(const tt__message *m) { return m->bytes > TT__EAGER_MAX || m->asked_for; }

static inline bool tt__same_key(const tt__key *a, const tt__key *b) {
    return a->group == b->group && a->seq == b->seq && a->step == b->step;
}

/* Do ranks disagree on what this collective is? */
static inline bool tt__contradicts(const tt__key *a, const tt__key *b) {
    return a->seq && a->seq == b->seq && a->group == b->group && a->word != b->word;
}

_Static_assert(sizeof(tt__frame) == 48, "the header has no padding");

#endif
