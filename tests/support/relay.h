/* A network that misbehaves: a process that stands between two ends of TCP connections and forwards late, slowly, in
 * pieces, or not at all.
 *
 * A rank is led through it by inject_relay(): its connect() reaches the relay and begins with a `relay_call`, the
 * address that was meant. relay_tell() says at any time what the relay does with a caller's connections. */
#ifndef TESTS_SUPPORT_RELAY_H
#define TESTS_SUPPORT_RELAY_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef struct relay_call {
    int32_t caller;
    uint32_t address_size;
    struct sockaddr_storage address;
} relay_call;

typedef enum relay_how {
    RELAY_FORWARD, /* as it comes */
    RELAY_CHOP,    /* a byte at a time: each its own segment */
    RELAY_DELAY,   /* every piece `amount` ms later */
    RELAY_STALL,   /* after `amount` more bytes nothing moves any more; the connections stay open */
    RELAY_TEAR,    /* after `amount` more bytes both ends are reset */
    RELAY_FLIP,    /* after `amount` more bytes one bit is wrong, once */
    /* in each connection one bit is wrong: in the byte `amount` (from 0) of what the caller says, or hears */
    RELAY_FLIP_SAID,
    RELAY_FLIP_HEARD
} relay_how;

typedef struct relay_order {
    int32_t caller; /* whose connections; -1: everybody's, also later ones */
    int32_t how;
    int64_t amount;
} relay_order;

typedef struct relay {
    pid_t pid;
    int port;
    int control;
} relay;

/* Start a relay, as a child process that ends with this one. A failure ends the test. Call it before threads exist. */
void relay_start(relay *relay);

/* Set how the relay treats the caller's connections from now on. Returns when the relay does so. */
void relay_tell(const relay *relay, int caller, relay_how how, int64_t amount);

void relay_stop(relay *relay);

#endif
