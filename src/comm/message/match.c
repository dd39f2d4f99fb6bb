/* Receives and messages find each other.
 *
 * Messages of one link are matched in the order in which they came, against receives in the order in which they were posted; one from any source
 * counts among those of each link by its id, which grows with every post. */
#include "comm/message/engine.h"

#include <stdlib.h>

/* Two sizes of records, so that a steady exchange allocates nothing. */
enum { SMALL = 464, SPARE_MAX = 64 };

static bool older(const tt__message *a, const tt__message *b) { return (int32_t)(a->id - b->id) < 0; }

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

/* Nobody has asked for this step, but somebody for another step of what should be the same call. */
static void end_contradicted(tt__link *link, const tt__key *key, uint64_t bytes) {
    for (tt__message *m = link->posted.first, *next; m; m = next) {
        next = m->next;
        if (!tt__contradicts(&m->key, key))
            continue;
        tt__list_remove(&link->posted, m);
        m->source = link->peer;
        tt__mismatch(link->messages, m, key, bytes);
    }
}

static void hear_word(tt__messages *messages, const tt__key *key) {
    if (key->seq && messages->config.hear_word)
        messages->config.hear_word(messages->config.world, key->group, key->seq, key->word);
}

void tt__messages_compare(tt__messages *messages, const int *ranks, int count, const tt__key *key) {
    for (int i = 0; i < count; i++) {
        const tt__link *link = messages->links[ranks[i]];
        for (const tt__arrival *a = link ? link->arrivals : NULL; a; a = a->next)
            if (tt__contradicts(&a->key, key))
                hear_word(messages, &a->key);
        for (const tt__readiness *r = link ? link->readies : NULL; r; r = r->next)
            if (tt__contradicts(&r->key, key))
                hear_word(messages, &r->key);
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
    if (m && (!any || older(m, any))) {
        tt__list_remove(&link->posted, m);
    } else {
        m = any;
        tt__list_remove(&link->messages->any, m);
    }
    m->source = link->peer;
    tt__list_append(&link->arriving, m);
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

static void unlink_arrival(tt__link *link, tt__arrival **at) {
    tt__arrival *arrival = *at;
    *at = arrival->next;
    if (!arrival->next)
        link->arrivals_end = at;
    link->arrival_count--;
}

void tt__arrival_drop(tt__link *link, tt__arrival **at) {
    tt__arrival *arrival = *at;
    unlink_arrival(link, at);
    tt__arrival_free(link->messages, arrival);
}

static tt__arrival *take_arrival(tt__link *link, const tt__message *receive) {
    for (tt__arrival **at = &link->arrivals; *at; at = &(*at)->next) {
        tt__arrival *a = *at;
        if (!tt__same_key(&a->key, &receive->key) && !tt__contradicts(&a->key, &receive->key))
            continue;
        unlink_arrival(link, at);
        return a;
    }
    return NULL;
}

tt__arrival *tt__match_arrival(tt__messages *messages, const tt__message *receive, tt__link **link) {
    int first = receive->peer == TT_ANY_SOURCE ? 0 : receive->peer;
    int end = receive->peer == TT_ANY_SOURCE ? messages->config.size : first + 1;
    for (int i = first; i < end; i++) {
        /* From another rank each time, so that none is forgotten behind a busy one. */
        int r = end - first == 1 ? first : (int)((receive->id + (uint32_t)i) % (uint32_t)end);
        *link = messages->links[r];
        tt__arrival *arrival = *link ? take_arrival(*link, receive) : NULL;
        if (arrival)
            return arrival;
    }
    return NULL;
}

tt__arrival *tt__arrival_new(tt__messages *messages, const tt__key *key, uint64_t bytes, uint32_t id) {
    uint32_t room = id || bytes <= SMALL ? SMALL : TT__EAGER_MAX;
    tt__arrival **at = &messages->spare;
    while (*at && (*at)->room != room)
        at = &(*at)->next;
    tt__arrival *a = *at;
    if (a) {
        *at = a->next;
        messages->spare_count--;
    } else if (!(a = malloc(sizeof *a + room))) {
        return NULL;
    }
    a->next = NULL;
    a->key = *key;
    a->bytes = bytes;
    a->id = id;
    a->room = room;
    return a;
}

void tt__arrival_keep(tt__link *link, tt__arrival *arrival) {
    hear_word(link->messages, &arrival->key);
    *link->arrivals_end = arrival;
    link->arrivals_end = &arrival->next;
    link->arrival_count++;
}

void tt__arrival_free(tt__messages *messages, tt__arrival *arrival) {
    if (!arrival)
        return;
    if (messages->spare_count == SPARE_MAX) {
        free(arrival);
        return;
    }
    arrival->next = messages->spare;
    messages->spare = arrival;
    messages->spare_count++;
}

static void forget_arrivals(tt__link *link, uint32_t group) {
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
            tt__give_back(link, bytes);
    }
}

static void forget_readies(tt__link *link, uint32_t group) {
    for (tt__readiness **at = &link->readies; *at;)
        if ((*at)->key.group == group)
            tt__ready_drop(link, at);
        else
            at = &(*at)->next;
}

static uint32_t place_of(uint32_t group) { return (group * UINT32_C(0x9e3779b1)) / (UINT32_MAX / TT__FORGOTTEN + 1); }

bool tt__is_forgotten(const tt__messages *messages, uint32_t group) {
    return messages->forgotten[place_of(group)] == group + 1;
}

void tt__messages_expect(tt__messages *messages, uint32_t group) {
    if (tt__is_forgotten(messages, group))
        messages->forgotten[place_of(group)] = 0;
}

void tt__messages_forget(tt__messages *messages, uint32_t group) {
    messages->forgotten[place_of(group)] = group + 1;
    for (int r = 0; r < messages->config.size; r++) {
        if (!messages->links[r])
            continue;
        forget_arrivals(messages->links[r], group);
        forget_readies(messages->links[r], group);
    }
}

void tt__ready_keep(tt__link *link, const tt__frame *frame) {
    tt__readiness *ready = malloc(sizeof *ready);
    if (!ready) {
        tt__link_end(link, TT_ERR_MEMORY, "no memory for what a peer waits for");
        return;
    }
    hear_word(link->messages, &frame->key);
    *ready = (tt__readiness){.key = frame->key, .bytes = frame->bytes, .id = frame->id};
    *link->readies_end = ready;
    link->readies_end = &ready->next;
    link->ready_count++;
}

void tt__ready_drop(tt__link *link, tt__readiness **at) {
    tt__readiness *ready = *at;
    *at = ready->next;
    if (!ready->next)
        link->readies_end = at;
    link->ready_count--;
    free(ready);
}
