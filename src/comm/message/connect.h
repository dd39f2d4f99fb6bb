/* Making TCP links when ranks join: what address.c, attempt.c and open.c share. */
#ifndef TT_COMM_MESSAGE_CONNECT_H
#define TT_COMM_MESSAGE_CONNECT_H

#include "comm/message/engine.h"
#include "net/net.h"

enum { TT__CANDIDATES = 16 };

/* One address of a rank. */
typedef struct tt__candidate {
    struct sockaddr_storage address;
    socklen_t size;
    char text[TT__NET_ADDRESS_SIZE];
    char why[96]; /* it did not work; "" while not tried */
} tt__candidate;

/* A rank that is to be called. */
typedef struct tt__target {
    int rank;
    uint8_t job[TT__JOB_SIZE]; /* its number */
    tt__candidate candidates[TT__CANDIDATES];
    int count, next; /* next: to be tried */
    int round, trying;
    int64_t next_ms; /* when */
    tt_status worst; /* of what went wrong: says what the failure is */
} tt__target;

/* A connection on its way to becoming a link. */
typedef struct tt__attempt {
    struct tt__attempt *following;
    tt__stream stream;
    tt__handshake handshake;
    enum { TT__CONNECTING, TT__ENCRYPTING, TT__GREETING, TT__CHOOSING, TT__LINKED, TT__BROKEN } step;
    tt__target *target; /* NULL: the other side called */
    int candidate;
    short events; /* poll() for */
    int64_t deadline_ms;
    tt_status status; /* if broken */
    char where[TT__NET_ADDRESS_SIZE], why[96];
} tt__attempt;

/* ---- address.c */

tt_status tt__addresses_describe(int port, const uint8_t *nonce, int family, bool only_local, char *text);

/* Into target->job and ->candidates, the likeliest first; target->rank is set. */
tt_status tt__addresses_read(const char *text, tt__target *target);

/* The interface that a connection goes over: "eth0", "?". */
const char *tt__interface_of(int fd, char *name, size_t size);

/* ---- attempt.c */

/* Begin to call a candidate of `target`. NULL: no memory. */
tt__attempt *tt__attempt_call(const tt__messages *messages, const tt__secret *secret, tt__target *target,
                              int candidate);

/* Somebody called: `fd` is the attempt's. NULL: no memory, and fd is closed. */
tt__attempt *tt__attempt_answer(const tt__messages *messages, const tt__secret *secret, int fd,
                                const struct sockaddr_storage *from);

/* Its socket is ready: go on as far as possible. Its `step` says how it stands; `events` what for it waits. */
void tt__attempt_go_on(tt__attempt *attempt);

void tt__attempt_free(tt__attempt *attempt);

#endif
