/* Making TCP links when ranks join. */
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
    char why[96]; /* it failed; "" while not tried */
} tt__candidate;

/* A rank that this one connects to. */
typedef struct tt__target {
    int rank;
    uint8_t job[TT__JOB_SIZE]; /* the nonce in its address token */
    tt__candidate candidates[TT__CANDIDATES];
    int count, next_candidate;
    int round;       /* over all candidates */
    int trying;      /* attempts under way */
    int64_t next_ms; /* when to try the next candidate */
    tt_status worst; /* of what went wrong: the status of a failure */
} tt__target;

/* A connection on its way to becoming a link. */
typedef struct tt__attempt {
    struct tt__attempt *next;
    tt__stream stream;
    tt__handshake handshake;
    enum {
        TT__ATTEMPT_CONNECTING,
        TT__ATTEMPT_TLS,
        TT__ATTEMPT_HANDSHAKE,
        TT__ATTEMPT_CHOOSING, /* the connecting side says whether it takes this one of several connections */
        TT__ATTEMPT_DONE,
        TT__ATTEMPT_FAILED
    } step;
    tt__target *target; /* NULL: the other side connected to this one */
    int candidate;
    short events; /* poll() for */
    int64_t deadline_ms;
    tt_status status; /* if failed */
    char where[TT__NET_ADDRESS_SIZE], why[96];
} tt__attempt;

/* ---- addresses.c */

/* Describe by which addresses this process is reached, as tt__messages_listen() does. */
tt_status tt__addresses_describe(int port, const uint8_t *nonce, int family, bool only_local, char *text);

/* Read such a description into target->job and ->candidates, the likeliest first; target->rank is set. */
tt_status tt__addresses_read(const char *text, tt__target *target);

/* Return the interface that a connection goes over: "eth0", "?". */
const char *tt__interface_of(int fd, char *name, size_t size);

/* ---- attempt.c */

/* Start to connect to a candidate of `target`. NULL: no memory. */
tt__attempt *tt__attempt_connect(const tt__messages *messages, const tt__secret *secret, tt__target *target,
                                 int candidate);

/* Answer a connection `fd`, which is taken. NULL: no memory, and fd is closed. */
tt__attempt *tt__attempt_accept(const tt__messages *messages, const tt__secret *secret, int fd,
                                const struct sockaddr_storage *from);

/* Continue as far as possible, as the socket is ready. `step` says what was reached, `events` what to wait for. */
void tt__attempt_continue(tt__attempt *attempt);

void tt__attempt_free(tt__attempt *attempt);

/* ---- joining.c */

/* Close the listener and what a failed joining left. */
void tt__messages_stop_joining(tt__messages *messages);

#endif
