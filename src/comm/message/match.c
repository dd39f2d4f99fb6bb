/* Messages of one link are matched in the order in which they came, against receives in the order in which they were
 * posted. The place of a receive from any source among each link's receives follows from its id, which grows with every
 * post. */
#include "comm/message/message_parts.h"

#include <string.h>

static uint32_t group_slot(uint32_t group) {
    return (group * UINT32_C(0x9e3779b1)) / (UINT32_MAX / TT__ENDED_GROUPS + 1);
}

bool tt__messages_have_ended(const tt__messages *messages, uint32_t group) {
    return messages->ended_groups[group_slot(group)] == group + 1;
}

void tt__messages_expect(tt__messages *messages, uint32_t group) {
    if (tt__messages_have_ended(messages, group))
        messages->ended_groups[group_slot(group)] = 0;
}

static void drop_arrivals(tt__link *link, uint32_t group) {
    for (tt__arrival **at = &link->arrivals; *at;) {
        const tt__arrival *arrival = *at;
        uint64_t bytes = arrival->bytes;
        bool eager = !arrival->id;
        if (arrival->key.group != group) {
            at = &(*at)->next;
            continue;
        }
        tt__arrival_drop(link, at);
        if (eager)
            tt__give_credit(link, bytes);
    }
}

static void drop_readies(tt__link *link, uint32_t group) {
    for (tt__readiness **at = &link->readies; *at;)
        if ((*at)->key.group == group)
            tt__ready_drop(link, at);
        else
            at = &(*at)->next;
}

void tt__messages_forget(tt__messages *messages, uint32_t group) {
    messages->ended_groups[group_slot(group)] = group + 1;
    for (int r = 0; r < messages->config.size; r++) {
        if (!messages->links[r])
            continue;
        drop_arrivals(messages->links[r], group);
        drop_readies(messages->links[r], group);
    }
}

static bool is_older(const tt__message *a, const tt__message *b) { return (int32_t)(a->id - b->id) < 0; }

tt__message *tt__first_for(const tt__message_list *list, const tt__key *key) {
    tt__message *m = list->first;
    while (m && !tt__same_key(&m->key, key))
        m = m->next;
    return m;
}

bool tt__fits(const tt__message *message, const tt__key *key, uint64_t bytes) {
    return message->key.word == key->word && message->bytes == bytes;
}

void tt__mismatch(tt__messages *messages, tt__message *message, const tt__key *key, uint64_t bytes) {
    message->got_word = key->word;
    message->got_record = key->record;
    message->got = bytes;
    tt__message_done(messages, message, TT_ERR_MISMATCH);
}

/* End receives of the same call that have another word: the peer called something else. */
static void end_contradicted(tt__link *link, const tt__key *key, uint64_t bytes) {
    for (tt__message *m = link->posted.first, *next; m; m = next) {
        next = m->next;
        if (!tt__contradicts(&m->key, key))
            continue;
        tt__message_list_remove(&link->posted, m);
        m->source = link->peer;
        tt__mismatch(link->messages, m, key, bytes);
    }
}

tt__message *tt__match_receive(tt__link *link, const tt__key *key, uint64_t bytes) {
    tt__message *m = tt__first_for(&link->posted, key),
                *any = key->seq ? NULL : tt__first_for(&link->messages->any, key);
    if (!m && !any) {
        if (key->seq)
            end_contradicted(link, key, bytes);
        return NULL;
    }
    if (m && (!any || is_older(m, any))) {
        tt__message_list_remove(&link->posted, m);
    } else {
        m = any;
        tt__message_list_remove(&link->messages->any, m);
    }
    m->source = link->peer;
    tt__message_list_append(&link->arriving, m);
    return m;
}

static tt__message *with_id(const tt__message_list *list, uint32_t id) {
    tt__message *m = list->first;
    while (m && m->id != id)
        m = m->next;
    return m;
}

tt__message *tt__find_receive(tt__link *link, uint32_t id) {
    tt__message *m = with_id(&link->arriving, id);
    return m ? m : with_id(&link->posted, id);
}

tt__message *tt__find_send(tt__link *link, uint32_t id) {
    tt__message *m = with_id(&link->announced, id);
    return m ? m : with_id(&link->sending, id);
}

static tt__arrival *take_arrival(tt__link *link, const tt__message *receive) {
    for (tt__arrival **at = &link->arrivals; *at; at = &(*at)->next) {
        tt__arrival *a = *at;
        if (!tt__same_key(&a->key, &receive->key) && !tt__contradicts(&a->key, &receive->key))
            continue;
        return tt__arrival_take(link, at);
    }
    return NULL;
}

tt__arrival *tt__match_arrival(tt__messages *messages, const tt__message *receive, tt__link **link) {
    int first = receive->peer == TT_ANY_SOURCE ? 0 : receive->peer;
    int end = receive->peer == TT_ANY_SOURCE ? messages->config.size : first + 1;
    for (int i = first; i < end; i++) {
        /* Start at another rank each time, so that no rank starves behind a busy one. */
        int r = end - first == 1 ? first : (int)((receive->id + (uint32_t)i) % (uint32_t)end);
        *link = messages->links[r];
        tt__arrival *arrival = *link ? take_arrival(*link, receive) : NULL;
        if (arrival)
            return arrival;
    }
    return NULL;
}

/* ---- accepting and refusing */

void tt__copy_to_receive(tt__messages *messages, tt__message *receive, const tt__key *key, const void *data,
                         size_t bytes) {
    if (!tt__fits(receive, key, bytes)) {
        tt__mismatch(messages, receive, key, bytes);
        return;
    }
    if (bytes)
        memcpy(receive->data, data, bytes);
    tt__message_done(messages, receive, TT_OK);
}

void tt__send_ready(tt__link *link, tt__message *receive, uint32_t send_id) {
    receive->peer_id = send_id;
    tt__frame frame = {
        .type = TT__FRAME_READY, .key = receive->key, .id = receive->id, .other = send_id, .bytes = receive->bytes};
    tt__send_frame(link, &frame, NULL, 0);
}

void tt__accept_announced(tt__link *link, tt__message *receive, uint32_t send_id) {
    receive->state = TT__MESSAGE_ARRIVING;
    tt__message_list_append(&link->arriving, receive);
    if (link->transport.ops) {
        tt__send_ready(link, receive, send_id);
        return;
    }
    tt__message *send = tt__find_send(link, send_id);
    tt__message_list_remove(&link->announced, send);
    tt__message_list_remove(&link->arriving, receive);
    tt__copy_to_receive(link->messages, receive, &send->key, send->data, send->bytes);
    tt__message_done(link->messages, send, TT_OK);
}

void tt__refuse_announced(tt__link *link, tt__message *receive, uint32_t send_id, const tt__key *key, uint64_t bytes) {
    if (link->transport.ops) {
        tt__refuse(link, TT__REFUSE_MISMATCH, receive, send_id);
    } else {
        tt__message *send = tt__find_send(link, send_id);
        tt__message_list_remove(&link->announced, send);
        tt__mismatch(link->messages, send, &receive->key, receive->bytes);
    }
    tt__mismatch(link->messages, receive, key, bytes);
}
