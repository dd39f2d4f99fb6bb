/* Making TCP links: between all ranks when they join (joining.c), or one by one when they are needed (dialling.c). */
#ifndef TT_COMM_MESSAGE_JOINING_H
#define TT_COMM_MESSAGE_JOINING_H

#include "comm/message/state.h"
#include "net/net.h"

enum { TT__CANDIDATES = 16 };

/* One address of a rank. */
typedef struct tt__candidate {
    struct sockaddr_storage address;
    socklen_t size;
    char text[TT__NET_ADDRESS_SIZE];
    char why[96]; /* why it failed; "": it was not tried, or has not failed */
    bool gone;    /* it failed because no process, or one of another job, listens there */
} tt__candidate;

/* What a worker tells about itself to the worker that it connects to. */
enum { TT__INTRO_NAME = 128, TT__INTRO_HOST = 64 };
typedef struct tt__intro {
    char name[TT__INTRO_NAME], host[TT__INTRO_HOST];
    uint64_t functions; /* the hash of its functions */
} tt__intro;

/* The answer to tt__intro. */
enum {
    TT__ANSWER_TAKEN = 'Y',    /* this connection is the link from now on */
    TT__ANSWER_DECLINED = 'N', /* another connection is the link */
    TT__ANSWER_LOST = 'L',     /* the connecting worker is lost for the answering one, and stays so */
    TT__ANSWER_WAIT = 'w'      /* the answer will follow */
};

/* A rank that this one connects to. */
typedef struct tt__target {
    int rank;
    uint8_t job[TT__JOB_SIZE]; /* the nonce in its address token */
    tt__candidate candidates[TT__CANDIDATES];
    int count, next_candidate;
    int round;                  /* how often all candidates have been tried */
    int trying;                 /* attempts under way */
    int64_t next_ms;            /* when to try the next candidate */
    struct tt__attempt *chosen; /* of workers: the attempt that waits for an answer; no other may ask */
    tt_status worst;            /* the status of a failed attempt; TT_ERR_AUTH before others */
} tt__target;

/* A connection on its way to becoming a link. */
typedef struct tt__attempt {
    struct tt__attempt *next;
    int64_t began_ms;
    tt__stream stream;
    tt__handshake handshake;
    enum {
        TT__ATTEMPT_CONNECTING,
        TT__ATTEMPT_TLS,
        TT__ATTEMPT_HANDSHAKE,
        TT__ATTEMPT_CHOOSING, /* the connecting side says which of several connections it takes */
        TT__ATTEMPT_ASKED,    /* a worker has taken this one, and waits for tt__attempt_answer() */
        TT__ATTEMPT_ANSWER,   /* this side waits for that answer */
        TT__ATTEMPT_DONE,
        TT__ATTEMPT_FAILED
    } step;
    tt__target *target; /* NULL: the other side connected to this one */
    int candidate;
    short events; /* what to poll() for */
    int64_t deadline_ms;
    tt_status status; /* if failed */
    char where[TT__NET_ADDRESS_SIZE], why[96];
    uint32_t source; /* of a peer that has connected: a number for its network */
    bool gone;       /* if failed: as a candidate's */

    /* Of workers that come and go. */
    int epoll;             /* its socket is watched there for `watched`; -1: it is not */
    short watched;         /* 0: not yet */
    int64_t patience_ms;   /* for an answer; 0: the peers are ranks, which don't answer */
    const tt__intro *says; /* what this side says; borrowed */
    tt__intro intro;       /* what the other side says */
    size_t moved;          /* bytes sent or received of either */
    char answer;           /* 0: none yet */
} tt__attempt;

/* ---- addresses.c */

/* Read an address token into target->job and ->candidates, the likeliest first; target->rank is set. */
tt_status tt__addresses_read(const char *text, tt__target *target);

/* Return the interface that a connection goes over: "eth0", "?". */
const char *tt__interface_of(int fd, char *name, size_t size);

/* ---- attempt.c */

/* Start to connect to a candidate of `target`. NULL: no memory. */
tt__attempt *tt__attempt_connect(const tt__messages *messages, const tt__secret *secret, tt__target *target,
                                 int candidate);

/* Begin with a connection `fd` that another process has made; it is taken. NULL: no memory, and fd is closed. */
tt__attempt *tt__attempt_accept(const tt__messages *messages, const tt__secret *secret, int fd,
                                const struct sockaddr_storage *from);

/* Continue as far as possible after the socket became ready. `step` says how far it is, `events` what to wait for. */
void tt__attempt_continue(tt__attempt *attempt);

/* Answer a worker whose attempt is TT__ATTEMPT_ASKED. It is done then, or has failed; after TT__ANSWER_WAIT neither. */
void tt__attempt_answer(tt__attempt *attempt, char answer);

/* Watch the attempt's socket in its epoll for `events` (false: that failed); stop watching it. */
bool tt__attempt_watch(tt__attempt *attempt);
void tt__attempt_unwatch(tt__attempt *attempt);

void tt__attempt_free(tt__attempt *attempt);

/* ---- attempts.c */

/* The attempts of an engine, including those that peers began. */
typedef struct tt__attempts {
    tt__messages *messages;
    tt__secret secret;
    tt__attempt *first; /* the newest */
    int accepted;       /* begun by others */
    int expected;       /* peers that connect to this one */
    int strangers;      /* how many of `accepted` may be more than are expected */
    bool starved;       /* a caller was turned away because there was no descriptor for it */

    /* Of workers that come and go; zeroed for ranks. */
    const tt__intro *intro;
    int epoll;           /* for all attempts */
    int spare;           /* a descriptor, given up to turn callers away when there is no other; -1: none */
    int64_t patience_ms; /* for a peer that is connected and does not answer; ranks have more */
    bool full;           /* accept nobody until strangers have proved who they are, or run out of time */
    tt__refusals refusals;
} tt__attempts;

/* Read the job secret, and choose how the engine's bytes travel. The secret is wiped by tt__attempts_end(). */
tt_status tt__attempts_begin(tt__attempts *attempts, tt__messages *messages);
void tt__attempts_end(tt__attempts *attempts);

/* Accept connections. Errors: TT_ERR_SYSTEM there are no descriptors for them. */
tt_status tt__attempts_accept(tt__attempts *attempts);

/* Log that the connection is refused. */
void tt__attempts_refuse(tt__attempts *attempts, const tt__attempt *attempt, const char *why);

/* Take an attempt out of the list and free it. */
void tt__attempts_drop(tt__attempts *attempts, tt__attempt **at);

/* Fail an attempt whose deadline has passed. */
void tt__attempt_expire(tt__attempt *attempt, int64_t now);

/* Try the next candidate of a target if it is due. *given_up: all have failed, as often as they are tried. `start_ms`:
 * when the first was tried. Errors: TT_ERR_MEMORY. */
tt_status tt__target_try(tt__attempts *attempts, tt__target *target, int64_t start_ms, int64_t now, bool *given_up);

/* Note that an attempt at its target has failed. */
void tt__target_note_failed(const tt__attempt *attempt);

/* Return when the next candidate is to be tried; -1: not before an attempt has ended. */
int64_t tt__target_due_ms(const tt__target *target);

/* Write what was tried: "10.0.0.2:4711 (Connection refused), 10.1.0.2:4711 (no answer)". Returns `text`. */
enum { TT__TRIED_SIZE = 1400 };
const char *tt__target_tried(const tt__target *target, char text[TT__TRIED_SIZE]);

/* ---- joining.c */

/* Close the listener, and the attempts that joining left. */
void tt__messages_stop_joining(tt__messages *messages);

/* ---- dialling.c */

typedef struct tt__dialling tt__dialling;

typedef struct tt__dialling_config {
    tt__messages *messages; /* it listens already */
    const tt__intro *intro; /* of this worker; borrowed */
    void *user;

    /* May worker `peer`, which has connected and proved the job secret, have a link? */
    bool (*may_link)(void *user, int peer, const tt__intro *intro);

    /* Called when a link to `peer` was made. */
    void (*linked)(void *user, int peer);

    /* Called when a dial has failed, with the reason as this thread's last error. */
    void (*failed)(void *user, int peer);
} tt__dialling_config;

/* Begin to accept connections, and start the engine's thread. Workers that connect get their answer after
 * tt__messages_take_packets(). The lock must not be held. */
tt_status tt__dialling_begin(tt__dialling **out, const tt__dialling_config *config);

/* Dial `peer`, which has no link, at the addresses of its token. linked() or failed() is called at the end, but not
 * before this returns. Does nothing if a dial is under way. Errors: TT_ERR_PROTOCOL the token is malformed;
 * TT_ERR_MEMORY. */
tt_status tt__dial(tt__dialling *dialling, int peer, const char *addresses);

/* Close all connections that are not yet links. No callback is called any more. tt__dialling_free() frees the rest,
 * after the engine was closed. `quietly`: in a forked child. */
void tt__dialling_stop(tt__dialling *dialling, bool quietly);

/* Free it. The lock must not be held. NULL is allowed. */
void tt__dialling_free(tt__dialling *dialling);

#endif
