/* The service and its queue of sessions that the server must attend to. */
#include "store/service.h"

#include <stdarg.h>
#include <stdio.h>

void tt__store_service_init(tt__store_service *service) {
    tt__store_table_init(&service->table);
    tt__list_init(&service->queue);
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

void tt__store_session_break(tt__store_session *session, const char *format, ...) {
    if (session->broken)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(session->why, sizeof session->why, format, args);
    va_end(args);
    session->broken = true;
    tt__store_session_queue(session);
}
