/* The handshake: both ends of a new connection prove that they belong to one job, before anything else is said.
 *
 * The client is the side that connected, the server the side that listened. Each message is four bytes, 0xF5 version
 * kind detail, and what its kind has:
 *
 *   client  HELLO      purpose, does it prove, does it seal, its rank and the one it wants, the job, 32 random bytes
 *   server  CHALLENGE  the same from its side, 32 random bytes of its own           without a secret both are done here
 *   client  PROOF      HMAC-SHA-256 over "client", HELLO, CHALLENGE and the channel
 *   server  ACCEPT     HMAC-SHA-256 over "server", HELLO, CHALLENGE and the channel
 *   server  REFUSAL    instead of any of its messages: the reason; then it closes
 *
 * Proofs cover everything said, so none can be used again: not for another connection (random bytes of both), not by
 * the other side (the role), not for another service, job or pair of ranks. `channel` ties them to the encrypted
 * connection they are made on. A store's clients don't know its job, and learn it from the challenge: the store's life.
 * The client proves first, so that a stranger gets nothing to test a guess of the secret with. Without a secret the
 * same messages detect strangers and other jobs, but prove nothing. A side with a secret never accepts one without.
 *
 * A pure state machine: bytes in, bytes out, no socket and no clock. The caller, which moves the bytes, has a deadline
 * of its own. */
#ifndef TT_NET_HANDSHAKE_H
#define TT_NET_HANDSHAKE_H

#include "net/secure/secret.h"

enum {
    TT__HANDSHAKE_FIRST_BYTE = 0xF5, /* begins no request of PyTorch's store, no TLS record, no text */
    TT__HANDSHAKE_VERSION = 1,
    TT__HANDSHAKE_MESSAGE_MAX = 64,
    TT__JOB_SIZE = 16,
    TT__ANY_RANK = -1,
};

/* What the connection is for: a port accepts only its own purpose. */
typedef enum tt__purpose { TT__PURPOSE_STORE = 1, TT__PURPOSE_TRANSPORT = 2 } tt__purpose;

/* How bytes travel after the handshake. Both sides must choose the same, which the proofs cover. */
typedef enum tt__sealing { TT__SEALING_NONE, TT__SEALING_RECORDS } tt__sealing;

/* One side's part. */
typedef struct tt__handshake_role {
    bool server;
    tt__purpose purpose;
    tt__sealing sealing;
    const tt__secret *secret;      /* borrowed until the handshake is over; NULL or none set: nothing is proved */
    uint8_t job[TT__JOB_SIZE];     /* the same on both sides; a store's client sends zeros, and learns it */
    int rank, peer;                /* own rank, and the expected one; TT__ANY_RANK: none, any */
    uint8_t channel[TT__MAC_SIZE]; /* tt__stream_channel(); zeros on a plain connection */
} tt__handshake_role;

typedef enum tt__handshake_state {
    TT__HANDSHAKE_GOING,
    TT__HANDSHAKE_DONE,  /* for this side: `out` may still hold the last message, which must be sent */
    TT__HANDSHAKE_FAILED /* `out` may hold a refusal: send as much as possible without waiting, then close */
} tt__handshake_state;

/* Why it failed. Numbers up to TT__REFUSED_FULL are sent to the other side. */
typedef enum tt__refusal {
    TT__REFUSED_NOT,
    TT__REFUSED_VERSION,   /* another version of this handshake */
    TT__REFUSED_PURPOSE,   /* the other side wants another service than this port's */
    TT__REFUSED_NO_PROOF,  /* the client proves nothing, the server has a secret */
    TT__REFUSED_NO_SECRET, /* the client has a secret, the server has none */
    TT__REFUSED_PROOF,     /* another secret */
    TT__REFUSED_JOB,       /* another job */
    TT__REFUSED_RANK,      /* not the rank that was expected */
    TT__REFUSED_PLAIN,     /* the server wants an encrypted connection */
    TT__REFUSED_SEALING,   /* one side seals what follows, the other does not */
    TT__REFUSED_FULL,      /* the server can't take more connections */
    TT__REFUSED_STRANGER,  /* not this protocol at all */
    TT__REFUSED_BROKEN     /* this protocol, but an impossible message */
} tt__refusal;

typedef struct tt__handshake {
    tt__handshake_role role;
    tt__handshake_state state;
    tt__refusal refusal;
    /* Once done: the other side's rank and the server's job, as the other side says. With a secret, the proof covers
     * both. */
    int peer;
    uint8_t job[TT__JOB_SIZE];

    uint8_t out[TT__HANDSHAKE_MESSAGE_MAX]; /* to be sent, in this order */
    size_t out_size;
    uint8_t in[TT__HANDSHAKE_MESSAGE_MAX]; /* the received part of the next message */
    size_t in_size;
    uint8_t expected; /* the kind of that message */
    uint8_t hello[TT__HANDSHAKE_MESSAGE_MAX], challenge[TT__HANDSHAKE_MESSAGE_MAX];
} tt__handshake;

/* Begin; a client's first message is then in `out`. TT_ERR_SYSTEM: no random bytes. */
tt_status tt__handshake_begin(tt__handshake *handshake, const tt__handshake_role *role);

/* Return how many bytes it wants to read next; 0 once it is over. It never asks for bytes that follow the handshake. */
size_t tt__handshake_wants(const tt__handshake *handshake);

/* Take received bytes. Returns how many were taken: all, unless the handshake ended before. */
size_t tt__handshake_feed(tt__handshake *handshake, const void *data, size_t size);

/* Derive the keys for what this side sends and receives, after a handshake that is done and has proved the secret. They
 * come from the secret and both introductions, so no other connection, job, service or pair of ranks has them. */
void tt__handshake_keys(const tt__handshake *handshake, uint8_t send[TT__MAC_SIZE], uint8_t receive[TT__MAC_SIZE]);

/* Drop the first `size` bytes of `out`, which were sent. */
void tt__handshake_sent(tt__handshake *handshake, size_t size);

/* Make the message by which a server refuses a peer before there is a handshake. Returns its size. */
size_t tt__handshake_refusal(tt__refusal why, uint8_t message[TT__HANDSHAKE_MESSAGE_MAX]);

/* Record why it failed: TT_ERR_AUTH, or TT_ERR_PROTOCOL for a stranger or another version. The caller prepends the
 * peer's name. */
tt_status tt__handshake_error(const tt__handshake *handshake);

/* Return the reason in a few words, for a log line of the side that refuses: "it has another job secret". */
const char *tt__handshake_reason(const tt__handshake *handshake);

#endif
