#include "store/server/waiters.h"

#include <stdlib.h>

static tt__store_place *place_of_node(tt__list_node *node) {
    return (tt__store_place *)(void *)((char *)node - offsetof(tt__store_place, in_entry));
}

void tt__store_wait_cancel(tt__store_session *session) {
    for (size_t i = 0; i < session->wait_count; i++)
        if (session->waits[i].entry) {
            tt__list_remove(&session->waits[i].in_entry);
            tt__store_table_settle(&session->service->table, session->waits[i].entry);
        }
    free(session->waits);
    session->waits = NULL;
    session->wait_count = session->wait_missing = 0;
}

static bool make_places(tt__store_session *session, uint64_t count) {
    session->waits = calloc(count, sizeof *session->waits);
    if (!session->waits)
        tt__store_session_break(session, TT__STORE_NO_MEMORY);
    return session->waits != NULL;
}

static void add_place(tt__store_session *session, tt__store_entry *entry, tt__list_node *ring) {
    tt__store_place *place = &session->waits[session->wait_count++];
    place->session = session;
    place->entry = entry;
    tt__list_append(ring, &place->in_entry);
    session->wait_missing++;
}

static void answer_wait(tt__store_session *session) {
    tt__store_put_u8(&session->out, TT__STORE_STOP_WAITING);
    tt__store_session_queue(session);
}

void tt__store_wait_begin(tt__store_session *session, tt__store_fields keys, uint64_t count) {
    tt__store_table *table = &session->service->table;
    tt__store_wait_cancel(session);
    for (uint64_t i = 0; i < count; i++) {
        tt__span key = tt__store_take_string(&keys);
        tt__store_entry *entry = tt__store_table_find(table, key);
        if (tt__store_entry_there(entry))
            continue;
        if (!session->waits && !make_places(session, count - i))
            return;
        if (!tt__store_has_room(session, entry ? 0 : sizeof *entry + key.size))
            return;
        if (!entry && !(entry = tt__store_table_obtain(table, key))) {
            tt__store_session_break(session, TT__STORE_NO_MEMORY);
            return;
        }
        add_place(session, entry, &entry->waiters);
    }
    if (!session->wait_missing)
        answer_wait(session);
}

void tt__store_barrier_begin(tt__store_session *session, tt__store_entry *entry) {
    tt__store_wait_cancel(session);
    if (make_places(session, 1))
        add_place(session, entry, &entry->barriers);
}

/* Count what the first place of the ring waited for as there. Answers its session, and returns true, if it waits for
 * nothing else. Otherwise it keeps its place in its array, outside of the ring. */
static bool release_first(tt__list_node *ring) {
    tt__store_place *place = place_of_node(ring->next);
    tt__store_session *session = place->session;
    tt__list_remove(&place->in_entry);
    place->entry = NULL;
    if (--session->wait_missing)
        return false;
    tt__store_wait_cancel(session);
    answer_wait(session);
    return true;
}

static void release_ring(tt__list_node *ring) {
    while (!tt__list_empty(ring))
        release_first(ring);
}

void tt__store_release_waiters(tt__store_entry *entry) { release_ring(&entry->waiters); }

void tt__store_release_waiter(tt__store_entry *entry) {
    while (!tt__list_empty(&entry->waiters) && !release_first(&entry->waiters)) {
    }
}

void tt__store_release_barrier(tt__store_entry *entry) { release_ring(&entry->barriers); }

void tt__store_watch_begin(tt__store_session *session, tt__store_entry *entry) {
    tt__store_place *place = calloc(1, sizeof *place);
    tt__store_place **watches = realloc(session->watches, (session->watch_count + 1) * sizeof(tt__store_place *));
    if (watches)
        session->watches = watches;
    if (!place || !watches) {
        free(place);
        tt__store_session_break(session, TT__STORE_NO_MEMORY);
        return;
    }
    place->session = session;
    place->entry = entry;
    tt__list_append(&entry->watchers, &place->in_entry);
    session->watches[session->watch_count++] = place;
    tt__store_put_u8(&session->out, TT__STORE_WATCHING);
}

void tt__store_watch_end(tt__store_session *session) {
    for (size_t i = 0; i < session->watch_count; i++) {
        tt__list_remove(&session->watches[i]->in_entry);
        tt__store_table_settle(&session->service->table, session->watches[i]->entry);
        free(session->watches[i]);
    }
    free(session->watches);
    session->watches = NULL;
    session->watch_count = 0;
}

void tt__store_notify(tt__store_entry *entry, uint8_t type, tt__span old, tt__span now) {
    for (tt__list_node *node = entry->watchers.next; node != &entry->watchers; node = node->next) {
        tt__store_session *session = place_of_node(node)->session;
        if (session->broken)
            continue;
        tt__store_put_u8(&session->out, type);
        tt__store_put_string(&session->out, tt__store_entry_key(entry));
        tt__store_put_string(&session->out, old);
        tt__store_put_string(&session->out, now);
        if (session->out.failed || session->out.size > TT__STORE_OUT_MAX)
            tt__store_session_break(session, "it watches keys but does not read the notices");
        tt__store_session_charge(session);
        tt__store_session_queue(session);
    }
}
