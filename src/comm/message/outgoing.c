/* Writing frames. Small frames are written straight from where they are. What the link does not take at once is copied:
 * so an eager message is done when it is posted, and the window bounds the copies. Large messages take turns, a chunk
 * each, and give way to small frames. */
#include "comm/message/message_parts.h"

/* Bytes that one flush moves at most, so that other links get their turn; memory that an empty queue keeps. */
enum { FLUSH_MAX = 8 << 20, KEEP = 64 << 10 };

static void queue_bytes(tt__link *link, const void *data, size_t bytes) {
    tt__bytes_put(&link->out, data, bytes);
    if (link->out.failed)
        tt__link_end(link, TT_ERR_MEMORY, "no memory for %zu bytes that wait to be written", bytes);
}

/* Has the chunk been begun? Then it must be finished before anything else. */
static bool inside_chunk(const tt__link *link) { return link->chunk && link->chunk_sent; }

static bool nothing_waits(const tt__link *link) { return link->out_at == link->out.size && !inside_chunk(link); }

/* Write nothing more. What the peer sent before may still have to be read; the link ends when that is done. */
static void stop_writing(tt__link *link) { link->broken = true; }

static void fill_frame_header(tt__link *link, tt__frame *frame) {
    frame->magic = TT__FRAME_MAGIC;
    frame->credit = link->credit;
    link->credit = 0;
}

void tt__queue_frame(tt__link *link, tt__frame *frame) {
    if (link->ended || link->broken)
        return;
    fill_frame_header(link, frame);
    queue_bytes(link, frame, sizeof *frame);
}

void tt__send_frame(tt__link *link, tt__frame *frame, const void *body, size_t bytes) {
    if (link->ended || link->broken)
        return;
    fill_frame_header(link, frame);
    size_t sent = 0;
    if (nothing_waits(link)) {
        const struct iovec parts[2] = {{frame, sizeof *frame}, {(void *)(uintptr_t)body, bytes}};
        ssize_t n = link->transport.ops->send(&link->transport, parts, bytes ? 2 : 1);
        if (n < 0) {
            stop_writing(link);
            return;
        }
        sent = (size_t)n;
    }
    if (sent < sizeof *frame)
        queue_bytes(link, (const char *)frame + sent, sizeof *frame - sent);
    size_t body_sent = sent < sizeof *frame ? 0 : sent - sizeof *frame;
    if (body_sent < bytes && !link->ended)
        queue_bytes(link, (const char *)body + body_sent, bytes - body_sent);
    tt__poller_watch_writes(link, tt__link_wants_write(link));
}

/* Prepare the next chunk, of the first message that is being sent. */
static void prepare_chunk(tt__link *link) {
    tt__message *message = link->sending.first;
    if (link->chunk || !message)
        return;
    size_t left = message->bytes - message->moved;
    link->chunk = message;
    link->chunk_sent = 0;
    link->chunk_bytes = left < TT__CHUNK ? left : TT__CHUNK;
    link->chunk_header = (tt__frame){.magic = TT__FRAME_MAGIC,
                                     .type = TT__FRAME_DATA,
                                     .credit = link->credit,
                                     .other = message->peer_id,
                                     .bytes = link->chunk_bytes};
    link->credit = 0;
}

static int chunk_parts(const tt__link *link, struct iovec *parts) {
    const size_t head = sizeof link->chunk_header;
    size_t sent = link->chunk_sent;
    int n = 0;
    if (!link->chunk)
        return 0;
    if (sent < head)
        parts[n++] = (struct iovec){(char *)(uintptr_t)&link->chunk_header + sent, head - sent};
    size_t data_sent = sent < head ? 0 : sent - head;
    parts[n++] =
        (struct iovec){(char *)link->chunk->data + link->chunk->moved + data_sent, link->chunk_bytes - data_sent};
    return n;
}

static int queue_parts(const tt__link *link, struct iovec *parts) {
    if (link->out_at == link->out.size)
        return 0;
    *parts = (struct iovec){link->out.data + link->out_at, link->out.size - link->out_at};
    return 1;
}

/* `n` bytes were written: advance the queue by its part of them, and return the rest. */
static size_t advance_queue(tt__link *link, size_t n) {
    size_t waits = link->out.size - link->out_at, taken = n < waits ? n : waits;
    link->out_at += taken;
    if (link->out_at == link->out.size) {
        tt__bytes_clear(&link->out, KEEP);
        link->out_at = 0;
    }
    return n - taken;
}

static size_t advance_chunk(tt__link *link, size_t n) {
    tt__message *message = link->chunk;
    if (!message || !n)
        return n;
    size_t left = sizeof link->chunk_header + link->chunk_bytes - link->chunk_sent, taken = n < left ? n : left;
    link->chunk_sent += taken;
    if (taken < left)
        return n - taken;
    link->chunk = NULL;
    message->moved += link->chunk_bytes;
    tt__message_list_remove(&link->sending, message);
    if (message->moved == message->bytes)
        tt__message_done(link->messages, message, TT_OK);
    else
        tt__message_list_append(&link->sending, message);
    return n - taken;
}

/* Write once. Returns the bytes written; 0: the link takes no more, or nothing waits. */
static size_t write_once(tt__link *link) {
    struct iovec parts[3];
    bool chunk_first = inside_chunk(link);
    int n;
    if (chunk_first) {
        n = chunk_parts(link, parts);
        n += queue_parts(link, parts + n);
    } else {
        prepare_chunk(link);
        n = queue_parts(link, parts);
        n += chunk_parts(link, parts + n);
    }
    ssize_t sent =
        n || tt__stream_unsent(&link->transport.stream) ? link->transport.ops->send(&link->transport, parts, n) : 0;
    if (sent < 0) {
        stop_writing(link);
        return 0;
    }
    size_t rest = (size_t)sent;
    if (chunk_first)
        rest = advance_chunk(link, rest);
    rest = advance_queue(link, rest);
    if (!chunk_first)
        advance_chunk(link, rest);
    return (size_t)sent;
}

static bool something_waits(const tt__link *link) {
    return !link->broken && (link->chunk || link->sending.first || link->out_at < link->out.size ||
                             tt__stream_unsent(&link->transport.stream));
}

bool tt__link_flush(tt__link *link) {
    size_t moved = 0, n = 1;
    while (!link->ended && something_waits(link) && n && moved < FLUSH_MAX)
        moved += n = write_once(link);
    tt__poller_watch_writes(link, tt__link_wants_write(link));
    return moved;
}

bool tt__link_wants_write(const tt__link *link) { return !link->ended && something_waits(link); }

void tt__begin_sending(tt__link *link, tt__message *message, uint32_t receive_id) {
    message->peer_id = receive_id;
    message->state = TT__MESSAGE_SENDING;
    tt__message_list_append(&link->sending, message);
    tt__link_flush(link);
}

/* Copy the rest of a chunk that was begun: the peer expects it. */
static void keep_chunk(tt__link *link) {
    struct iovec parts[3];
    tt__bytes out = {0};
    int n = chunk_parts(link, parts);
    n += queue_parts(link, parts + n);
    for (int i = 0; i < n; i++)
        tt__bytes_put(&out, parts[i].iov_base, parts[i].iov_len);
    tt__bytes_free(&link->out);
    link->out = out;
    link->out_at = 0;
}

void tt__stop_sending(tt__link *link, tt__message *message) {
    tt__message_list_remove(&link->sending, message);
    if (link->chunk != message)
        return;
    if (inside_chunk(link))
        keep_chunk(link);
    link->chunk = NULL;
    if (link->out.failed)
        tt__link_end(link, TT_ERR_MEMORY, "no memory for the rest of a message that was taken back");
}

void tt__refuse(tt__link *link, int flags, const tt__message *own, uint32_t other) {
    tt__frame frame = {.type = TT__FRAME_REFUSE,
                       .flags = (uint8_t)flags,
                       .key = own->key,
                       .id = own->id,
                       .other = other,
                       .bytes = own->bytes};
    tt__send_frame(link, &frame, NULL, 0);
}

void tt__give_credit(tt__link *link, uint64_t bytes) {
    uint32_t cost = (uint32_t)bytes + TT__EAGER_COST;
    if (!link->transport.ops)
        return;
    link->eager_in -= cost;
    link->credit += cost;
    if (link->credit < TT__EAGER_WINDOW / 4)
        return;
    tt__frame frame = {.type = TT__FRAME_CREDIT};
    tt__send_frame(link, &frame, NULL, 0);
}
