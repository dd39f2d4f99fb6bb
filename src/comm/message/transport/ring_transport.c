/* Rings in shared memory. */
#include "comm/message/transport/transport.h"

#include <stdio.h>
#include <string.h>

/* Long runs of bytes are published in parts of this size, so that the reader begins before they are whole. */
enum { PUBLISH = 32 << 10 };

static ssize_t ring_broken(tt__transport *transport, const char *why) {
    snprintf(transport->why, sizeof transport->why, "%s", why);
    return -1;
}

static void ring_copy_in(tt__ring *ring, uint64_t at, const unsigned char *data, size_t n) {
    size_t place = at % TT__RING_BYTES, first = TT__RING_BYTES - place < n ? TT__RING_BYTES - place : n;
    memcpy(ring->data + place, data, first);
    memcpy(ring->data, data + first, n - first);
}

static void ring_copy_out(const tt__ring *ring, uint64_t at, unsigned char *data, size_t n) {
    size_t place = at % TT__RING_BYTES, first = TT__RING_BYTES - place < n ? TT__RING_BYTES - place : n;
    memcpy(data, ring->data + place, first);
    memcpy(data + first, ring->data, n - first);
}

/* Return how many of `want` bytes there is room for; -1: the reader's counter is impossible. */
static ssize_t ring_room(tt__transport *transport, size_t want) {
    uint64_t used = transport->ring_written - transport->ring_head_seen;
    if (TT__RING_BYTES - used >= want)
        return (ssize_t)want;
    transport->ring_head_seen = atomic_load_explicit(&transport->ring_out->head, memory_order_acquire);
    used = transport->ring_written - transport->ring_head_seen;
    if (used > TT__RING_BYTES)
        return ring_broken(transport, "its counters in shared memory are impossible");
    size_t room = TT__RING_BYTES - (size_t)used;
    return (ssize_t)(room < want ? room : want);
}

static size_t ring_write_part(tt__transport *transport, const struct iovec *part, size_t room) {
    size_t n = part->iov_len < room ? part->iov_len : room;
    for (size_t done = 0, piece; done < n; done += piece) {
        piece = n - done < PUBLISH ? n - done : PUBLISH;
        ring_copy_in(transport->ring_out, transport->ring_written, (const unsigned char *)part->iov_base + done, piece);
        transport->ring_written += piece;
        if (piece == PUBLISH)
            atomic_store_explicit(&transport->ring_out->tail, transport->ring_written, memory_order_release);
    }
    return n;
}

/* Wake the peer if it sleeps. A sleeper announces that it sleeps and then looks once more, so what was written must be
 * visible before the announcement is read. */
static void ring_wake_peer(tt__transport *transport) {
    __sync_synchronize();
    transport->wake(transport->world, transport->peer);
}

static ssize_t ring_send(tt__transport *transport, const struct iovec *parts, int count) {
    size_t total = 0, done = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].iov_len;
    ssize_t room = ring_room(transport, total);
    if (room <= 0)
        return room;
    for (int i = 0; i < count && done < (size_t)room; i++)
        done += ring_write_part(transport, &parts[i], (size_t)room - done);
    atomic_store_explicit(&transport->ring_out->tail, transport->ring_written, memory_order_release);
    ring_wake_peer(transport);
    return (ssize_t)done;
}

/* Read; wake the writer, which may sleep until there is room. */
static ssize_t ring_recv(tt__transport *transport, const struct iovec *parts, int count) {
    (void)count; /* nothing is read ahead */
    if (!transport->ring_in)
        return 0;
    uint64_t tail = atomic_load_explicit(&transport->ring_in->tail, memory_order_acquire),
             there = tail - transport->ring_read;
    if (!there)
        return 0;
    if (there > TT__RING_BYTES)
        return ring_broken(transport, "its counters in shared memory are impossible");
    size_t n = there < parts->iov_len ? (size_t)there : parts->iov_len;
    bool was_full = there > TT__RING_BYTES / 2;
    ring_copy_out(transport->ring_in, transport->ring_read, parts->iov_base, n);
    transport->ring_read += n;
    atomic_store_explicit(&transport->ring_in->head, transport->ring_read, memory_order_release);
    if (was_full)
        ring_wake_peer(transport);
    return (ssize_t)n;
}

/* Close the transport. The memory stays: it belongs to the world. */
static void ring_close(tt__transport *transport) { transport->ring_out = transport->ring_in = NULL; }

const tt__transport_ops tt__ring_ops = {false, ring_send, ring_recv, ring_close};
