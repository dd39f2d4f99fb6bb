/* Posting and cancelling messages. */
#include "base/machine/clock.h"
#include "comm/message/message_parts.h"

#include <string.h>

enum { LOOK_BACK = 64 }; /* posted receives that a new one looks at */

static void init_message(tt__messages *messages, tt__message *message, bool is_recv) {
    message->done = false;
    message->status = TT_OK;
    message->source = is_recv ? -1 : messages->config.rank;
    message->next = message->previous = NULL;
    message->moved = 0;
    message->peer_id = 0;
    message->is_recv = is_recv;
    if (!++messages->last_id)
        ++messages->last_id;
    message->id = messages->last_id;
    messages->open++;
}

/* Return the message's link; NULL: there is none, and the message is done. */
static tt__link *link_for(tt__messages *messages, tt__message *message) {
    tt__link *link = tt__link_to(messages, message->peer);
    if (!link || link->ended) {
        tt__message_done(messages, message, link ? link->status : tt_last_status());
        return NULL;
    }
    return link;
}

/* ---- sends */

static void announce_send(tt__link *link, tt__message *message) {
    message->state = TT__MESSAGE_ANNOUNCED;
    tt__message_list_append(&link->announced, message);
    tt__frame frame = {.type = TT__FRAME_ANNOUNCE, .key = message->key, .id = message->id, .bytes = message->bytes};
    tt__send_frame(link, &frame, NULL, 0);
}

/* Take the peer's "ready" for this message, or one for the same collective that has another word. */
static bool take_ready(tt__link *link, const tt__message *message, tt__readiness *found) {
    if (!message->key.seq && !tt__is_large(message))
        return false; /* a ready is never for a small send */
    for (tt__readiness **at = &link->readies; *at; at = &(*at)->next) {
        tt__readiness *ready = *at;
        if (!tt__same_key(&ready->key, &message->key) && !tt__contradicts(&ready->key, &message->key))
            continue;
        *found = *ready;
        tt__ready_drop(link, at);
        return true;
    }
    return false;
}

/* Announce which message the data belong to: messages sent later may overtake them, and may have the same key. */
static void claim_ready(tt__link *link, const tt__message *message, uint32_t receive_id) {
    tt__frame frame = {.type = TT__FRAME_ANNOUNCE,
                       .key = message->key,
                       .id = message->id,
                       .other = receive_id,
                       .bytes = message->bytes};
    tt__queue_frame(link, &frame);
}

/* Has the receiver sent "ready"? Reading what has come costs less than sending an announcement. */
static bool is_awaited(tt__link *link, const tt__message *message, tt__readiness *ready) {
    if (take_ready(link, message, ready))
        return true;
    link->messages->now_ms = tt__now_ms(); /* for link->received_ms */
    return tt__link_read(link) && take_ready(link, message, ready);
}

static void send_large(tt__link *link, tt__message *message) {
    tt__readiness ready;
    bool awaited = is_awaited(link, message, &ready);
    if (link->ended) {
        tt__message_done(link->messages, message, link->status);
    } else if (!awaited) {
        announce_send(link, message);
    } else if (tt__fits(message, &ready.key, ready.bytes)) {
        if (!message->key.seq)
            claim_ready(link, message, ready.id);
        if (link->ended)
            tt__message_done(link->messages, message, link->status);
        else
            tt__begin_sending(link, message, ready.id);
    } else {
        tt__refuse(link, TT__REFUSE_RECEIVE | TT__REFUSE_MISMATCH, message, ready.id);
        tt__mismatch(link->messages, message, &ready.key, ready.bytes);
    }
}

static void send_small(tt__link *link, tt__message *message) {
    link->eager_out += (uint32_t)message->bytes + TT__EAGER_COST;
    tt__frame frame = {.type = TT__FRAME_EAGER, .key = message->key, .bytes = message->bytes};
    tt__send_frame(link, &frame, message->data, message->bytes);
    tt__message_done(link->messages, message, link->ended ? link->status : TT_OK);
}

static bool window_takes(const tt__link *link, const tt__message *message) {
    return !tt__is_large(message) && link->eager_out + message->bytes + TT__EAGER_COST <= TT__EAGER_WINDOW;
}

static void send_to_self(tt__link *self, tt__message *message) {
    tt__messages *messages = self->messages;
    tt__message *receive = tt__match_receive(self, &message->key, message->bytes);
    bool small = !tt__is_large(message);
    if (receive) {
        tt__message_list_remove(&self->arriving, receive);
        tt__copy_to_receive(messages, receive, &message->key, message->data, message->bytes);
        tt__message_done(messages, message, TT_OK);
        return;
    }
    tt__arrival *arrival = tt__arrival_new(messages, &message->key, message->bytes, small ? 0 : message->id);
    if (!arrival) {
        tt__message_done(messages, message, TT_ERR_MEMORY);
        return;
    }
    tt__arrival_keep(self, arrival);
    if (small) {
        if (message->bytes)
            memcpy(arrival->data, message->data, message->bytes);
        tt__message_done(messages, message, TT_OK);
    } else {
        message->state = TT__MESSAGE_ANNOUNCED;
        tt__message_list_append(&self->announced, message);
    }
}

void tt__message_send(tt__messages *messages, tt__message *message) {
    init_message(messages, message, false);
    tt__link *link = link_for(messages, message);
    if (!link)
        return;
    if (!link->transport.ops)
        send_to_self(link, message);
    else if (window_takes(link, message))
        send_small(link, message);
    else
        send_large(link, message);
}

/* ---- receives */

/* Complete a receive that was posted after its message came. */
static void receive_arrival(tt__link *link, tt__message *message, tt__arrival *arrival) {
    message->source = link->peer;
    bool eager = !arrival->id;
    if (eager)
        tt__copy_to_receive(link->messages, message, &arrival->key, arrival->data, (size_t)arrival->bytes);
    else if (link->ended)
        tt__message_done(link->messages, message, link->status);
    else if (tt__fits(message, &arrival->key, arrival->bytes))
        tt__accept_announced(link, message, arrival->id);
    else
        tt__refuse_announced(link, message, arrival->id, &arrival->key, arrival->bytes);
    if (eager)
        tt__give_credit(link, arrival->bytes);
    tt__arrival_free(link->messages, arrival);
}

/* Was "ready" sent for all earlier receives with this key? Of large sends and receives with one key the first belongs
 * to the first. */
static bool earlier_are_ready(const tt__link *link, const tt__message *message) {
    int looked = 0;
    if (tt__first_for(&link->messages->any, &message->key))
        return false;
    for (const tt__message *m = link->posted.last; m; m = m->previous) {
        if (tt__same_key(&m->key, &message->key) && tt__is_large(m))
            return m->state == TT__MESSAGE_READY;
        if (++looked == LOOK_BACK)
            return false;
    }
    return true;
}

static bool knows_its_message(const tt__link *link, const tt__message *message) {
    return link->transport.ops && tt__is_large(message) && (message->key.seq || earlier_are_ready(link, message));
}

void tt__message_recv(tt__messages *messages, tt__message *message) {
    tt__link *link = NULL;
    init_message(messages, message, true);
    tt__arrival *arrival = tt__match_arrival(messages, message, &link);
    if (arrival) {
        receive_arrival(link, message, arrival);
        return;
    }
    message->state = TT__MESSAGE_POSTED;
    if (message->peer == TT_ANY_SOURCE) {
        tt__message_list_append(&messages->any, message);
        return;
    }
    if (!(link = link_for(messages, message)))
        return;
    if (knows_its_message(link, message))
        message->state = TT__MESSAGE_READY;
    tt__message_list_append(&link->posted, message);
    if (message->state == TT__MESSAGE_READY)
        tt__send_ready(link, message, 0);
}

/* ---- cancelling */

static void drop_own_arrival(tt__link *self, const tt__message *send) {
    for (tt__arrival **at = &self->arrivals; *at; at = &(*at)->next)
        if ((*at)->id == send->id) {
            tt__arrival_drop(self, at);
            return;
        }
}

static void cancel_send(tt__link *link, tt__message *message) {
    if (message->state == TT__MESSAGE_SENDING)
        tt__stop_sending(link, message);
    else
        tt__message_list_remove(&link->announced, message);
    if (link->transport.ops)
        tt__refuse(link, TT__REFUSE_RECEIVE, message, message->peer_id);
    else
        drop_own_arrival(link, message);
}

static void cancel_receive(tt__messages *messages, tt__link *link, tt__message *message) {
    if (message->state == TT__MESSAGE_POSTED) {
        tt__message_list_remove(message->peer == TT_ANY_SOURCE ? &messages->any : &link->posted, message);
        return;
    }
    bool eager = link->receiving == message && link->frame.type == TT__FRAME_EAGER;
    if (link->receiving == message) {
        tt__stream_let_go(&link->transport.stream);
        link->receiving = NULL;
        link->into = NULL;
    }
    tt__message_list_remove(message->state == TT__MESSAGE_READY ? &link->posted : &link->arriving, message);
    if (!eager)
        tt__refuse(link, 0, message, message->peer_id);
}

void tt__message_cancel(tt__messages *messages, tt__message *message, tt_status status) {
    if (message->done)
        return;
    int peer = message->is_recv && message->source >= 0 ? message->source : message->peer;
    tt__link *link = peer == TT_ANY_SOURCE ? NULL : messages->links[peer];
    if (message->is_recv)
        cancel_receive(messages, link, message);
    else
        cancel_send(link, message);
    tt__message_done(messages, message, status);
}
