/* Headers are read into the link's buffer, payloads straight to where they belong. */
#include "comm/message/incoming.h"

#include "comm/message/link.h"
#include "comm/message/on_frame.h"

#include <string.h>

enum {
    READ_MAX = 8 << 20, /* bytes that one call reads at most, so that other links get their turn */
    BEHIND = 4 << 10    /* bytes read behind a payload, or before a large one: the header, and some small frames */
};

/* Read into `parts`. Returns the number of bytes, 0 if there were none or the link ended. */
static size_t read_parts(tt__link *link, const struct iovec *parts, int count) {
    ssize_t n = link->transport.ops->recv(&link->transport, parts, count);
    if (n < 0)
        tt__link_end(link, TT_ERR_PEER, "%s", link->transport.why);
    return n < 0 ? 0 : (size_t)n;
}

/* Has the peer been told to send large data? What is read ahead of them must be copied. */
static bool expects_large(const tt__link *link) {
    return link->arriving.first || (link->posted.first && link->posted.first->state == TT__MESSAGE_READY);
}

/* Return how many bytes to read where a header is expected. */
static size_t header_room(const tt__link *link) {
    return !link->transport.ops->reads_ahead ? sizeof(tt__frame) : expects_large(link) ? BEHIND : link->in_room;
}

static size_t read_header_bytes(tt__link *link) {
    size_t have = link->in_end - link->in_at;
    if (link->in_at) {
        memmove(link->in, link->in + link->in_at, have);
        link->in_at = 0;
        link->in_end = have;
    }
    size_t want = header_room(link) - have;
    size_t n = read_parts(link, &(struct iovec){link->in + have, want}, 1);
    link->in_end += n;
    link->drained = n < want;
    return n;
}

/* Move bytes that were read ahead, or else new ones, to `into`; without `into` they are dropped. */
static size_t read_payload(tt__link *link) {
    size_t ahead = link->in_end - link->in_at, n = ahead < link->left_bytes ? ahead : link->left_bytes;
    if (n) {
        if (link->into)
            memcpy(link->into, link->in + link->in_at, n);
        link->in_at += n;
    } else if (!link->drained) {
        size_t want = link->into || link->left_bytes < TT__DISCARD ? link->left_bytes : TT__DISCARD;
        size_t behind = link->transport.ops->reads_ahead ? BEHIND : 0;
        link->in_at = link->in_end = 0;
        struct iovec parts[2] = {{link->into ? link->into : link->messages->discard, want}, {link->in, behind}};
        size_t got = read_parts(link, parts, behind ? 2 : 1);
        if (!link->into && !link->ended)
            tt__stream_let_go(&link->transport.stream); /* other links discard to the same memory */
        n = got < want ? got : want;
        link->in_end = got - n;
        link->drained = got < want + behind;
    }
    if (link->into)
        link->into += n;
    link->left_bytes -= n;
    return n;
}

static bool whole_header(const tt__link *link) { return link->in_end - link->in_at >= sizeof(tt__frame); }

/* Take one step. Returns the bytes moved. */
static size_t read_step(tt__link *link) {
    size_t n;
    if (link->in_payload) {
        n = read_payload(link);
    } else {
        n = whole_header(link) ? 0 : link->drained ? 0 : read_header_bytes(link);
        if (link->ended || !whole_header(link))
            return 0;
        memcpy(&link->frame, link->in + link->in_at, sizeof link->frame);
        link->in_at += sizeof link->frame;
        n += sizeof link->frame;
        if (!tt__on_frame_header(link))
            return 0;
        link->in_payload = true;
    }
    if (!link->ended && !link->left_bytes) {
        link->in_payload = false;
        tt__on_frame(link);
    }
    return n;
}

bool tt__link_read(tt__link *link) {
    size_t moved = 0, n = 1;
    link->drained = false;
    while (!link->ended && n && moved < READ_MAX)
        moved += n = read_step(link);
    if (n && tt__stream_pending(&link->transport.stream)) { /* epoll does not report what TLS has decrypted */
        tt__stream_hold(&link->transport.stream, true);
        while (!link->ended && n)
            moved += n = read_step(link);
        tt__stream_hold(&link->transport.stream, false);
    }
    if (moved)
        link->received_ms = link->messages->now_ms;
    return moved;
}
