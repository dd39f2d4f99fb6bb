/* Reading frames and acting on them. Headers are read into the link's buffer, payloads straight to where they belong. A
 * bad frame ends its link, and nothing else. */
#include "comm/message/message_parts.h"

#include <string.h>

static bool protocol_error(tt__link *link, const char *what) {
    tt__link_end(link, TT_ERR_PROTOCOL, "it sent what Tutti does not: %s (frame %d, %llu bytes)", what,
                 link->frame.type, (unsigned long long)link->frame.bytes);
    return false;
}

static void finish_receive(tt__link *link, tt__message *receive, tt_status status) {
    tt__message_list_remove(&link->arriving, receive);
    tt__message_done(link->messages, receive, status);
}

static void finish_mismatch(tt__link *link, tt__message *receive, const tt__key *key, uint64_t bytes) {
    tt__message_list_remove(&link->arriving, receive);
    tt__mismatch(link->messages, receive, key, bytes);
}

/* ---- data */

static bool begin_eager(tt__link *link) {
    const tt__frame *frame = &link->frame;
    if (frame->bytes > TT__EAGER_MAX)
        return protocol_error(link, "a small message that is large");
    link->eager_in += (uint32_t)frame->bytes + TT__EAGER_COST;
    if (link->eager_in > TT__EAGER_WINDOW)
        return protocol_error(link, "more small messages than it may");
    tt__message *receive = tt__match_receive(link, &frame->key, frame->bytes);
    if (receive && !tt__fits(receive, &frame->key, frame->bytes)) {
        finish_mismatch(link, receive, &frame->key, frame->bytes);
        return true;
    }
    if (receive) {
        receive->state = TT__MESSAGE_ARRIVING;
        link->receiving = receive;
        link->into = receive->data;
        return true;
    }
    if (tt__messages_have_ended(link->messages, frame->key.group))
        return true;
    link->keeping = tt__arrival_new(link->messages, &frame->key, frame->bytes, 0);
    if (!link->keeping) {
        tt__link_end(link, TT_ERR_MEMORY, "no memory for a message of %llu bytes", (unsigned long long)frame->bytes);
        return false;
    }
    link->into = link->keeping->data;
    return true;
}

/* Keep an eager message, unless a receive was posted while its data came. */
static void keep_eager(tt__link *link, tt__arrival *arrival) {
    tt__message *receive = tt__match_receive(link, &arrival->key, arrival->bytes);
    if (!receive) {
        tt__arrival_keep(link, arrival);
        return;
    }
    if (!tt__fits(receive, &arrival->key, arrival->bytes)) {
        finish_mismatch(link, receive, &arrival->key, arrival->bytes);
    } else {
        if (arrival->bytes)
            memcpy(receive->data, arrival->data, (size_t)arrival->bytes);
        finish_receive(link, receive, TT_OK);
    }
    tt__give_credit(link, arrival->bytes);
    tt__arrival_free(link->messages, arrival);
}

static void end_eager(tt__link *link) {
    tt__arrival *arrival = link->keeping;
    link->keeping = NULL;
    if (arrival) {
        keep_eager(link, arrival);
        return;
    }
    if (link->receiving)
        finish_receive(link, link->receiving, TT_OK);
    tt__give_credit(link, link->frame.bytes);
}

static void begin_arriving(tt__link *link, tt__message *receive) {
    tt__message_list_remove(&link->posted, receive);
    tt__message_list_append(&link->arriving, receive);
    receive->state = TT__MESSAGE_ARRIVING;
    receive->source = link->peer;
}

static bool begin_data(tt__link *link) {
    const tt__frame *frame = &link->frame;
    if (!frame->bytes || frame->bytes > TT__CHUNK)
        return protocol_error(link, "a piece of an impossible size");
    tt__message *receive = tt__find_receive(link, frame->other);
    if (!receive)
        return true; /* cancelled meanwhile */
    bool announced = receive->state == TT__MESSAGE_READY || receive->state == TT__MESSAGE_ARRIVING;
    if (!announced || frame->bytes > receive->bytes - receive->moved)
        return protocol_error(link, "more data than was asked for");
    if (receive->state == TT__MESSAGE_READY)
        begin_arriving(link, receive);
    link->receiving = receive;
    link->into = (unsigned char *)receive->data + receive->moved;
    return true;
}

static void end_data(tt__link *link) {
    tt__message *receive = link->receiving;
    if (!receive)
        return;
    receive->moved += (size_t)link->frame.bytes;
    if (receive->moved == receive->bytes)
        finish_receive(link, receive, TT_OK);
}

/* ---- who wants what */

static void keep_announcement(tt__link *link, const tt__frame *frame) {
    if (tt__messages_have_ended(link->messages, frame->key.group))
        return; /* the sender learns from news that this rank has left the group */
    if (link->arrival_count >= TT__KEPT_MAX) {
        protocol_error(link, "more announcements than can be kept");
        return;
    }
    tt__arrival *arrival = tt__arrival_new(link->messages, &frame->key, frame->bytes, frame->id);
    if (arrival)
        tt__arrival_keep(link, arrival);
    else
        tt__link_end(link, TT_ERR_MEMORY, "no memory for an announcement");
}

/* Bind the ready receive to send `id`: no message that comes before its data is for this receive. */
static void on_claim(tt__link *link, uint32_t receive_id, uint32_t id) {
    tt__message *receive = tt__find_receive(link, receive_id);
    if (!receive || receive->state != TT__MESSAGE_READY)
        return; /* cancelled meanwhile */
    begin_arriving(link, receive);
    receive->peer_id = id;
}

static void on_announce(tt__link *link) {
    const tt__frame *frame = &link->frame;
    if (!frame->id) {
        protocol_error(link, "an announcement without a number");
        return;
    }
    if (frame->other) {
        on_claim(link, frame->other, frame->id);
        return;
    }
    tt__message *receive = tt__match_receive(link, &frame->key, frame->bytes);
    if (!receive) {
        keep_announcement(link, frame);
        return;
    }
    bool announced = receive->state == TT__MESSAGE_READY;
    receive->state = TT__MESSAGE_ARRIVING;
    receive->peer_id = frame->id;
    if (announced && tt__fits(receive, &frame->key, frame->bytes))
        return;
    tt__message_list_remove(&link->arriving, receive);
    if (tt__fits(receive, &frame->key, frame->bytes))
        tt__accept_announced(link, receive, frame->id);
    else
        tt__refuse_announced(link, receive, frame->id, &frame->key, frame->bytes);
}

/* Is a ready with this key, sent before an announcement, for this message? */
static bool ready_is_for(const tt__message *m, const tt__key *key) {
    return tt__same_key(&m->key, key) && (key->seq || tt__is_large(m));
}

/* Find the announced message that a ready is for; end those that contradict it. */
static tt__message *announced_for(tt__link *link, const tt__frame *frame) {
    for (tt__message *m = link->announced.first, *next; m; m = next) {
        next = m->next;
        if (frame->other ? m->id == frame->other : ready_is_for(m, &frame->key))
            return m;
        if (!frame->other && tt__contradicts(&m->key, &frame->key)) {
            tt__message_list_remove(&link->announced, m);
            tt__refuse(link, TT__REFUSE_RECEIVE | TT__REFUSE_MISMATCH, m, frame->id);
            tt__mismatch(link->messages, m, &frame->key, frame->bytes);
        }
    }
    return NULL;
}

static void keep_ready(tt__link *link, const tt__frame *frame) {
    if (!tt__ready_keep(link, &frame->key, frame->bytes, frame->id))
        tt__link_end(link, TT_ERR_MEMORY, "no memory for what a peer waits for");
}

static void on_ready(tt__link *link) {
    const tt__frame frame = link->frame;
    if (!frame.id) {
        protocol_error(link, "a receive without a number");
        return;
    }
    tt__message *send = announced_for(link, &frame);
    if (!send) {
        if (!frame.other && link->ready_count >= TT__KEPT_MAX)
            protocol_error(link, "more receives than can be kept");
        else if (!frame.other && !tt__messages_have_ended(link->messages, frame.key.group))
            keep_ready(link, &frame);
        return;
    }
    tt__message_list_remove(&link->announced, send);
    if (tt__fits(send, &frame.key, frame.bytes)) {
        tt__begin_sending(link, send, frame.id);
    } else {
        tt__refuse(link, TT__REFUSE_RECEIVE | TT__REFUSE_MISMATCH, send, frame.id);
        tt__mismatch(link->messages, send, &frame.key, frame.bytes);
    }
}

static tt__message *sent_by(tt__link *link, uint32_t send_id) {
    tt__message *m = link->arriving.first;
    while (m && m->peer_id != send_id)
        m = m->next;
    return m;
}

/* Handle the peer's refusal of one of our receives. */
static void receive_refused(tt__link *link, const tt__frame *frame) {
    tt__message *receive = frame->other ? tt__find_receive(link, frame->other) : sent_by(link, frame->id);
    if (!receive) {
        for (tt__arrival **at = &link->arrivals; *at; at = &(*at)->next)
            if ((*at)->id == frame->id) {
                tt__arrival_drop(link, at);
                return;
            }
        return;
    }
    tt__message_list_remove(receive->state == TT__MESSAGE_ARRIVING ? &link->arriving : &link->posted, receive);
    receive->source = link->peer;
    if (frame->flags & TT__REFUSE_MISMATCH)
        tt__mismatch(link->messages, receive, &frame->key, frame->bytes);
    else
        tt__message_done(link->messages, receive, TT_ERR_ABORTED);
}

static tt__message *sent_to(tt__link *link, uint32_t receive_id) {
    tt__message *m = link->sending.first;
    while (m && m->peer_id != receive_id)
        m = m->next;
    return m;
}

/* Handle the peer's refusal of one of our sends. */
static void send_refused(tt__link *link, const tt__frame *frame) {
    tt__message *send = frame->other ? tt__find_send(link, frame->other) : sent_to(link, frame->id);
    if (!send) {
        for (tt__readiness **at = &link->readies; *at; at = &(*at)->next)
            if ((*at)->id == frame->id) {
                tt__ready_drop(link, at);
                return;
            }
        return;
    }
    if (send->state == TT__MESSAGE_SENDING)
        tt__stop_sending(link, send);
    else
        tt__message_list_remove(&link->announced, send);
    if (frame->flags & TT__REFUSE_MISMATCH)
        tt__mismatch(link->messages, send, &frame->key, frame->bytes);
    else
        tt__message_done(link->messages, send, TT_ERR_ABORTED);
}

static void on_refuse(tt__link *link) {
    const tt__frame frame = link->frame;
    if (!frame.id)
        protocol_error(link, "a refusal without a number");
    else if (frame.flags & TT__REFUSE_RECEIVE)
        receive_refused(link, &frame);
    else
        send_refused(link, &frame);
}

/* ---- all frames */

/* Does a frame of this type carry a payload that is not a message's? */
static bool has_body(int type) { return type == TT__FRAME_BEAT || type == TT__FRAME_NEWS || type == TT__FRAME_ANSWER; }

static bool begin_control(tt__link *link) {
    const tt__frame *frame = &link->frame;
    if (frame->bytes > TT__CONTROL_MAX || (frame->type == TT__FRAME_BEAT && frame->bytes != sizeof(tt__beat)) ||
        (frame->type == TT__FRAME_NEWS && frame->bytes < sizeof(tt__news_body)))
        return protocol_error(link, "a note of an impossible size");
    link->into = link->control;
    return true;
}

static bool begin_packet(tt__link *link) {
    const tt__frame *frame = &link->frame;
    if (!frame->bytes || frame->bytes > TT__PACKET_MAX)
        return protocol_error(link, "a packet of an impossible size");
    link->into = tt__packet_room(link, (size_t)frame->bytes);
    if (!link->into && link->messages->packet_taker) { /* its sender relies on its arrival */
        tt__link_end(link, TT_ERR_MEMORY, "no memory for a packet of %llu bytes", (unsigned long long)frame->bytes);
        return false;
    }
    return true;
}

/* Handle the header in link->frame, which has arrived: set link->into and what else the payload needs; false: the link
 * was ended. */
static bool on_frame_header(tt__link *link) {
    const tt__frame *frame = &link->frame;
    if (frame->magic != TT__FRAME_MAGIC || frame->type < TT__FRAME_EAGER || frame->type >= TT__FRAMES)
        return protocol_error(link, "an unknown frame");
    if (frame->credit > link->eager_out)
        return protocol_error(link, "more credit than was used");
    link->eager_out -= frame->credit;
    link->receiving = NULL;
    link->into = NULL;
    link->left_bytes = 0;
    if (frame->type == TT__FRAME_EAGER || frame->type == TT__FRAME_DATA || frame->type == TT__FRAME_PACKET ||
        has_body(frame->type))
        link->left_bytes = (size_t)frame->bytes;
    if (frame->type == TT__FRAME_EAGER)
        return begin_eager(link);
    if (frame->type == TT__FRAME_DATA)
        return begin_data(link);
    if (frame->type == TT__FRAME_PACKET)
        return begin_packet(link);
    return has_body(frame->type) ? begin_control(link) : true;
}

/* Handle the frame, whose payload has arrived, too. */
static void on_frame(tt__link *link) {
    switch ((tt__frame_type)link->frame.type) {
    case TT__FRAME_EAGER:
        end_eager(link);
        break;
    case TT__FRAME_DATA:
        end_data(link);
        break;
    case TT__FRAME_ANNOUNCE:
        on_announce(link);
        break;
    case TT__FRAME_READY:
        on_ready(link);
        break;
    case TT__FRAME_REFUSE:
        on_refuse(link);
        break;
    case TT__FRAME_BEAT: {
        tt__beat beat;
        memcpy(&beat, link->control, sizeof beat);
        tt__on_beat(link, &beat);
        break;
    }
    case TT__FRAME_NEWS:
        tt__on_news(link, link->control, (size_t)link->frame.bytes);
        break;
    case TT__FRAME_ASK:
        tt__on_question(link);
        break;
    case TT__FRAME_ANSWER:
        tt__on_answer(link, (size_t)link->frame.bytes);
        break;
    case TT__FRAME_GOODBYE:
        link->transport.peer_left = true;
        break;
    case TT__FRAME_PACKET:
        tt__packet_has_come(link);
        break;
    case TT__FRAME_CREDIT:
    case TT__FRAMES:
        break;
    }
}

enum {
    READ_MAX = 8 << 20, /* bytes that one call reads at most, so that other links get their turn */
    BEHIND = 4 << 10    /* bytes read behind a payload, or before a large one: the header, and some small frames */
};

/* Read into `parts`. Returns the number of bytes; 0: there were none, or the link ended. */
static size_t read_parts(tt__link *link, const struct iovec *parts, int count) {
    ssize_t n = link->transport.ops->recv(&link->transport, parts, count);
    if (n < 0)
        tt__link_end(link, TT_ERR_PEER, "%s", link->transport.why);
    return n < 0 ? 0 : (size_t)n;
}

/* Has the peer been told to send large data? Any of it that is read ahead must be copied. */
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
        if (!on_frame_header(link))
            return 0;
        link->in_payload = true;
    }
    if (!link->ended && !link->left_bytes) {
        link->in_payload = false;
        on_frame(link);
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
