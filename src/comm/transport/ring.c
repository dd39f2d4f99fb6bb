/* Links through rings in shared memory. */
#include "comm/transport/ring.h"

#include "base/error.h"
#include "comm/message/engine.h"

#include <stdio.h>
#include <string.h>

/* The writer tells of a long run of bytes in parts, so that the reader begins before it is whole. */
enum { PUBLISH = 32 << 10 };

static ssize_t broken(tt__link *link, const char *why) {
    snprintf(link->why, sizeof link->why, "%s", why);
    return -1;
}

tt_status tt__ring_open(tt__link *link) {
    tt__messages *messages = link->messages;
    const tt__messages_config *config = &messages->config;
    unsigned char *base, *own_base;
    tt__ring_board *board, *own_board;
    int number, own_number;
    size_t bytes;
    uint64_t offset;
    if (!config->ring_peer(config->world, link->peer, &number, &base, &bytes, &board) ||
        !config->ring_peer(config->world, config->rank, &own_number, &own_base, &bytes, &own_board))
        return tt__fail(TT_ERR_STATE, "there is no link to rank %d", link->peer);
    TT__TRY(config->ring_memory(config->world, sizeof(tt__ring), &offset));
    link->ring_out = (tt__ring *)(void *)(own_base + offset);
    atomic_store_explicit(&own_board->at[number], offset, memory_order_release);
    atomic_fetch_or_explicit(&board->made, UINT64_C(1) << own_number, memory_order_release);
    return TT_OK;
}

static void copy_in(tt__ring *ring, uint64_t at, const unsigned char *data, size_t n) {
    size_t place = at % TT__RING_BYTES, first = TT__RING_BYTES - place < n ? TT__RING_BYTES - place : n;
    memcpy(ring->data + place, data, first);
    memcpy(ring->data, data + first, n - first);
}

static void copy_out(const tt__ring *ring, uint64_t at, unsigned char *data, size_t n) {
    size_t place = at % TT__RING_BYTES, first = TT__RING_BYTES - place < n ? TT__RING_BYTES - place : n;
    memcpy(data, ring->data + place, first);
    memcpy(data + first, ring->data, n - first);
}

/* Room for `want` bytes as far as there is; -1: the reader's counter is nonsense. */
static ssize_t room_for(tt__link *link, size_t want) {
    uint64_t used = link->ring_written - link->ring_head_seen;
    if (TT__RING_BYTES - used >= want)
        return (ssize_t)want;
    link->ring_head_seen = atomic_load_explicit(&link->ring_out->head, memory_order_acquire);
    used = link->ring_written - link->ring_head_seen;
    if (used > TT__RING_BYTES)
        return broken(link, "its counters in shared memory are impossible");
    size_t room = TT__RING_BYTES - (size_t)used;
    return (ssize_t)(room < want ? room : want);
}

static size_t write_part(tt__link *link, const struct iovec *part, size_t room) {
    size_t n = part->iov_len < room ? part->iov_len : room;
    for (size_t done = 0, piece; done < n; done += piece) {
        piece = n - done < PUBLISH ? n - done : PUBLISH;
        copy_in(link->ring_out, link->ring_written, (const unsigned char *)part->iov_base + done, piece);
        link->ring_written += piece;
        if (piece == PUBLISH)
            atomic_store_explicit(&link->ring_out->tail, link->ring_written, memory_order_release);
    }
    return n;
}

/* Whoever sleeps has said so, then looked once more; so first what was written is to be seen, then who sleeps. */
static void wake(tt__link *link) {
    const tt__messages_config *config = &link->messages->config;
    __sync_synchronize();
    config->wake(config->world, link->peer);
}

static ssize_t ring_send(tt__link *link, const struct iovec *parts, int count) {
    size_t total = 0, done = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].iov_len;
    ssize_t room = room_for(link, total);
    if (room <= 0)
        return room;
    for (int i = 0; i < count && done < (size_t)room; i++)
        done += write_part(link, &parts[i], (size_t)room - done);
    atomic_store_explicit(&link->ring_out->tail, link->ring_written, memory_order_release);
    wake(link);
    return (ssize_t)done;
}

/* The reader of the other direction may sleep until there is room. */
static ssize_t ring_recv(tt__link *link, const struct iovec *parts, int count) {
    (void)count; /* nothing is read ahead */
    if (!link->ring_in)
        return 0;
    uint64_t tail = atomic_load_explicit(&link->ring_in->tail, memory_order_acquire), there = tail - link->ring_read;
    if (!there)
        return 0;
    if (there > TT__RING_BYTES)
        return broken(link, "its counters in shared memory are impossible");
    size_t n = there < parts->iov_len ? (size_t)there : parts->iov_len;
    bool was_full = there > TT__RING_BYTES / 2;
    copy_out(link->ring_in, link->ring_read, parts->iov_base, n);
    link->ring_read += n;
    atomic_store_explicit(&link->ring_in->head, link->ring_read, memory_order_release);
    if (was_full)
        wake(link);
    return (ssize_t)n;
}

/* The memory is the world's. */
static void ring_close(tt__link *link) {
    link->messages->ring_links--;
    link->ring_out = link->ring_in = NULL;
}

const tt__link_ops tt__ring_ops = {false, ring_send, ring_recv, ring_close};

/* A ring that rank `peer` has made to us. */
static void attach(tt__messages *messages, int peer, const unsigned char *base, size_t bytes,
                   const tt__ring_board *board, int own_number) {
    tt__link *link = tt__link_to(messages, peer);
    uint64_t at = atomic_load_explicit(&board->at[own_number], memory_order_acquire);
    if (!link || link->ended)
        return;
    if (at % _Alignof(tt__ring) || at > bytes || bytes - at < sizeof(tt__ring))
        tt__link_end(link, TT_ERR_PROTOCOL, "its ring lies outside of its memory");
    else
        link->ring_in = (tt__ring *)(void *)(uintptr_t)(base + at);
}

bool tt__rings_look(tt__messages *messages) {
    const tt__messages_config *config = &messages->config;
    unsigned char *base;
    tt__ring_board *board;
    int number;
    size_t bytes;
    if (!messages->board &&
        !config->ring_peer(config->world, config->rank, &messages->number, &base, &bytes, &messages->board))
        return false;
    if (!atomic_load_explicit(&messages->board->made, memory_order_relaxed))
        return false;
    uint64_t made = atomic_exchange_explicit(&messages->board->made, 0, memory_order_acq_rel);
    for (int r = 0; r < config->size && made; r++)
        if (config->ring_peer(config->world, r, &number, &base, &bytes, &board) && made >> number & 1) {
            attach(messages, r, base, bytes, board, messages->number);
            made &= ~(UINT64_C(1) << number);
        }
    return true;
}
