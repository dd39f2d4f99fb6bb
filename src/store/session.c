/* A client's stream of bytes becomes requests. */
#include "store/operations.h"
#include "store/service.h"
#include "store/waiters.h"

#include <stdarg.h>
#include <stdio.h>

/* Buffers of an idle connection are not larger than this. */
enum { IDLE_BUFFER = 4096 };

void tt__store_service_init(tt__store_service *service) {
    tt__store_table_init(&service->table);
    tt__link_init(&service->queue);
}

void tt__store_service_free(tt__store_service *service) { tt__store_table_free(&service->table); }

tt__store_session *tt__store_service_next(tt__store_service *service) {
    if (tt__link_alone(&service->queue))
        return NULL;
    tt__link *first = service->queue.next;
    tt__link_remove(first);
    return (tt__store_session *)(void *)((char *)first - offsetof(tt__store_session, queued));
}

void tt__store_session_init(tt__store_session *session, tt__store_service *service, void *owner) {
    *session = (tt__store_session){.service = service, .owner = owner};
    tt__link_init(&session->queued);
}

void tt__store_session_end(tt__store_session *session) {
    tt__store_wait_cancel(session);
    tt__store_watch_end(session);
    tt__link_remove(&session->queued);
    tt__bytes_free(&session->in);
    tt__bytes_free(&session->out);
}

void tt__store_session_queue(tt__store_session *session) {
    if (tt__link_alone(&session->queued))
        tt__link_before(&session->service->queue, &session->queued);
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

/* Learn the dialect; false while it can't be told. */
static bool meet(tt__store_session *session, const uint8_t *data, size_t size) {
    tt__store_first first = tt__store_first_contact(data, size);
    session->known = first != TT__STORE_FIRST_MORE;
    session->dialect = first == TT__STORE_FIRST_TORCH_2 ? TT_STORE_TORCH_2 : TT_STORE_TORCH_1_13;
    return session->known;
}

/* Serve the whole requests in `data`; how many bytes they were. */
static size_t serve(tt__store_session *session, const uint8_t *data, size_t size) {
    size_t done = 0;
    if (!session->known && !meet(session, data, size))
        return 0;
    while (!session->broken && session->out.size <= TT__STORE_OUT_PAUSE) {
        tt__store_parsed parsed =
            tt__store_parse(&session->parser, session->dialect, data + done, size - done, session->why);
        if (parsed == TT__STORE_MORE)
            break;
        if (parsed == TT__STORE_BAD) {
            session->broken = true;
            break;
        }
        tt__store_execute(session, &session->parser, data + done);
        if (session->out.failed || session->out.size > TT__STORE_OUT_MAX)
            tt__store_session_break(session, "a reply that does not fit into memory");
        done += session->parser.pos;
        session->parser = (tt__store_parser){0};
    }
    if (session->broken || session->out.size)
        tt__store_session_queue(session);
    return done;
}

void tt__store_session_resume(tt__store_session *session) {
    if (session->broken || !session->in.size)
        return;
    tt__bytes_consume(&session->in, serve(session, session->in.data, session->in.size));
    if (!session->in.size)
        tt__bytes_clear(&session->in, IDLE_BUFFER);
}

void tt__store_session_feed(tt__store_session *session, const void *data, size_t size) {
    if (session->broken || !size)
        return;
    size_t done = session->in.size ? 0 : serve(session, data, size);
    bool appended = session->in.size > 0;
    tt__bytes_put(&session->in, (const char *)data + done, size - done);
    if (session->in.failed)
        tt__store_session_break(session, "a request that does not fit into memory");
    else if (appended)
        tt__store_session_resume(session);
}
