#include "comm/message/arrivals.h"

#include "comm/message/state.h"

#include <stdlib.h>

/* Records have one of three sizes. Up to FREE_MAX of them, FREE_BYTES in all, are kept, so that a steady exchange
 * allocates nothing. */
enum { SMALL = 464, MIDDLE = 8 << 10, FREE_MAX = 64, FREE_BYTES = TT__EAGER_WINDOW };

static uint32_t room_for(uint64_t bytes) { return bytes <= SMALL ? SMALL : bytes <= MIDDLE ? MIDDLE : TT__EAGER_MAX; }

tt__arrival *tt__arrival_new(tt__messages *messages, const tt__key *key, uint64_t bytes, uint32_t id) {
    uint32_t room = room_for(id ? 0 : bytes);
    tt__arrival **at = &messages->free_arrivals;
    while (*at && (*at)->room != room)
        at = &(*at)->next;
    tt__arrival *a = *at;
    if (a) {
        *at = a->next;
        messages->free_arrival_count--;
        messages->free_arrival_bytes -= room;
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

void tt__arrival_free(tt__messages *messages, tt__arrival *arrival) {
    if (!arrival)
        return;
    if (messages->free_arrival_count == FREE_MAX || messages->free_arrival_bytes + arrival->room > FREE_BYTES) {
        free(arrival);
        return;
    }
    arrival->next = messages->free_arrivals;
    messages->free_arrivals = arrival;
    messages->free_arrival_count++;
    messages->free_arrival_bytes += arrival->room;
}

void tt__arrivals_free_all(tt__messages *messages) {
    while (messages->free_arrivals) {
        tt__arrival *arrival = messages->free_arrivals;
        messages->free_arrivals = arrival->next;
        free(arrival);
    }
}

/* Report to comm what the peer calls. */
static void report_word(tt__messages *messages, const tt__key *key) {
    if (key->seq && messages->config.on_word)
        messages->config.on_word(messages->config.world, key->group, key->seq, key->word);
}

void tt__arrival_keep(tt__link *link, tt__arrival *arrival) {
    report_word(link->messages, &arrival->key);
    *link->arrivals_end = arrival;
    link->arrivals_end = &arrival->next;
    link->arrival_count++;
}

tt__arrival *tt__arrival_take(tt__link *link, tt__arrival **at) {
    tt__arrival *arrival = *at;
    *at = arrival->next;
    if (!arrival->next)
        link->arrivals_end = at;
    link->arrival_count--;
    return arrival;
}

void tt__arrival_drop(tt__link *link, tt__arrival **at) {
    tt__arrival_free(link->messages, tt__arrival_take(link, at));
}

bool tt__ready_keep(tt__link *link, const tt__key *key, uint64_t bytes, uint32_t id) {
    tt__readiness *ready = malloc(sizeof *ready);
    if (!ready)
        return false;
    report_word(link->messages, key);
    *ready = (tt__readiness){.key = *key, .bytes = bytes, .id = id};
    *link->readies_end = ready;
    link->readies_end = &ready->next;
    link->ready_count++;
    return true;
}

void tt__ready_drop(tt__link *link, tt__readiness **at) {
    tt__readiness *ready = *at;
    *at = ready->next;
    if (!ready->next)
        link->readies_end = at;
    link->ready_count--;
    free(ready);
}

void tt__messages_compare(tt__messages *messages, const int *ranks, int count, const tt__key *key) {
    for (int i = 0; i < count; i++) {
        const tt__link *link = messages->links[ranks[i]];
        for (const tt__arrival *a = link ? link->arrivals : NULL; a; a = a->next)
            if (tt__contradicts(&a->key, key))
                report_word(messages, &a->key);
        for (const tt__readiness *r = link ? link->readies : NULL; r; r = r->next)
            if (tt__contradicts(&r->key, key))
                report_word(messages, &r->key);
    }
}
