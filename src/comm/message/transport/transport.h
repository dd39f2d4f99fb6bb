/* How bytes move between this rank and one peer: over a TCP connection, plain, sealed or encrypted, or through two
 * rings in shared memory. Nothing here knows of messages, and nothing above knows of sockets. */
#ifndef TT_COMM_MESSAGE_TRANSPORT_H
#define TT_COMM_MESSAGE_TRANSPORT_H

#include "comm/message/transport/ring.h"
#include "net/stream.h"

#include <sys/types.h>
#include <sys/uio.h>

typedef struct tt__transport tt__transport;

/* send, recv: move what can be moved without waiting. Return the number of bytes, 0 if none can be moved now, or -1 if
 * the transport has ended: then transport->why says how. */
typedef struct tt__transport_ops {
    bool reads_ahead; /* reading more than was asked for is as cheap as copying it later */
    ssize_t (*send)(tt__transport *transport, const struct iovec *parts, int count);
    ssize_t (*recv)(tt__transport *transport, const struct iovec *parts, int count);
    void (*close)(tt__transport *transport);
} tt__transport_ops;

extern const tt__transport_ops tt__tcp_ops, tt__sealed_ops, tt__tls_ops, tt__ring_ops;

struct tt__transport {
    const tt__transport_ops *ops; /* NULL: this rank itself, for which nothing moves */
    int peer;
    bool peer_left; /* the peer has said goodbye, so that an end of the stream is no failure */
    char why[128];

    tt__stream stream; /* of TCP, sealed, TLS; fd -1: none */

    /* Of rings, which lie in the memory of their writers. */
    tt__ring *ring_out, *ring_in;     /* ring_in NULL: the peer has made none yet */
    uint64_t ring_written, ring_read; /* this side's counters, which the peer only reads */
    uint64_t ring_head_seen;
    void (*wake)(void *world, int rank); /* end a sleep of the peer's process, if it sleeps */
    void *world;
};

#endif
