/* The service and its queue of sessions that the server must attend to. */
#include "store/server/service.h"

#include "base/text/format.h"

#include <stdarg.h>
#include <stdio.h>

void tt__store_service_init(tt__store_service *service) {
    tt__store_table_init(&service->table);
    tt__list_init(&service->queue);
    tt__list_init(&service->sessions);
    service->limit = SIZE_MAX;
    service->buffered = 0;
}

void tt__store_service_free(tt__store_service *service) { tt__store_table_free(&service->table); }

tt__store_session *tt__store_service_next(tt__store_service *service) {
    if (tt__list_empty(&service->queue))
        return NULL;
    tt__list_node *first = service->queue.next;
    tt__list_remove(first);
    return (tt__store_session *)(void *)((char *)first - offsetof(tt__store_session, queued));
}

void tt__store_session_queue(tt__store_session *session) {
    if (tt__list_empty(&session->queued))
        tt__list_append(&session->service->queue, &session->queued);
}

/* Return the session that holds the most. */
static tt__store_session *largest_session(tt__store_service *service) {
    tt__store_session *largest = NULL;
    for (tt__list_node *node = service->sessions.next; node != &service->sessions; node = node->next) {
        tt__store_session *s = (tt__store_session *)(void *)((char *)node - offsetof(tt__store_session, node));
        if (s->charged && (!largest || s->charged > largest->charged))
            largest = s;
    }
    return largest;
}

static void set_charge(tt__store_session *session, size_t bytes) {
    session->service->buffered += bytes - session->charged;
    session->charged = bytes;
}

void tt__store_session_charge(tt__store_session *session) {
    tt__store_service *service = session->service;
    set_charge(session, session->broken ? 0
                                        : session->in.capacity + session->out.capacity +
                                              session->wait_count * sizeof *session->waits +
                                              session->watch_count * (sizeof **session->watches + sizeof(void *)));
    while (service->table.bytes + service->buffered > service->limit) {
        tt__store_session *most = largest_session(service);
        if (!most)
            return;
        tt__store_session_break(
            most,
            "the store's memory is used up (%zu MiB, --store-memory), and of what clients left unread "
            "or unfinished it holds the most: %zu KiB",
            service->limit >> 20, most->charged >> 10);
        set_charge(most, 0);
    }
}

bool tt__store_has_room(tt__store_session *session, size_t more) {
    const tt__store_service *service = session->service;
    size_t allowed = service->limit / 4 * 3;
    if (more <= allowed && service->table.bytes <= allowed - more)
        return true;
    tt__store_session_break(session,
                            "%zu bytes more don't fit: values may take %zu MiB, three quarters of the store's memory "
                            "(--store-memory)",
                            more, allowed >> 20);
    return false;
}

void tt__store_session_break(tt__store_session *session, const char *format, ...) {
    if (session->broken)
        return;
    va_list args;
    va_start(args, format);
    tt__vformat(session->why, sizeof session->why, format, args);
    va_end(args);
    session->broken = true;
    tt__store_session_queue(session);
}
