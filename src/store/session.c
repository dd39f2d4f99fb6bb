/* Cut a client's bytes into requests and serve them. */
#include "store/operations.h"
#include "store/service.h"
#include "store/waiters.h"

/* Buffers of an idle connection are not larger than this. */
enum { IDLE_BUFFER = 4096 };

void tt__store_session_init(tt__store_session *session, tt__store_service *service, void *owner) {
    *session = (tt__store_session){.service = service, .owner = owner};
    tt__list_init(&session->queued);
    tt__list_append(&service->sessions, &session->node);
}

/* Delete the key that says that the client is there. */
static void delete_living(tt__store_session *session) {
    tt__store_table *table = &session->service->table;
    const tt__span key = {(const uint8_t *)session->living.data, session->living.size};
    tt__store_entry *entry = session->living.failed || !key.size ? NULL : tt__store_table_find(table, key);
    if (entry && entry->present) {
        tt__store_notify(entry, TT__STORE_DELETED, tt__store_entry_value(entry), (tt__span){0});
        tt__store_entry_clear(table, entry);
        tt__store_table_settle(table, entry);
    }
    tt__bytes_free(&session->living);
}

void tt__store_session_end(tt__store_session *session) {
    tt__store_wait_cancel(session);
    tt__store_watch_end(session);
    tt__list_remove(&session->queued);
    tt__list_remove(&session->node);
    delete_living(session);
    session->broken = true;
    tt__store_session_charge(session);
    tt__bytes_free(&session->in);
    tt__bytes_free(&session->out);
}

/* Detect the dialect; false while too few bytes have come. */
static bool detect_dialect(tt__store_session *session, const uint8_t *data, size_t size) {
    tt__store_first first = tt__store_first_contact(data, size);
    session->known = first != TT__STORE_FIRST_MORE;
    session->dialect = first == TT__STORE_FIRST_TORCH_2 ? TT_STORE_TORCH_2 : TT_STORE_TORCH_1_13;
    return session->known;
}

/* Carry out the next request, except for values that a MULTI_GET leaves for later; false: it is not whole, or wrong. */
static bool begin_request(tt__store_session *session, const uint8_t *data, size_t size) {
    if (session->gets_left)
        return true;
    tt__store_parsed parsed = tt__store_parse(&session->parser, session->dialect, data, size, session->why);
    if (parsed == TT__STORE_WHOLE)
        tt__store_execute(session, &session->parser, data);
    session->broken = session->broken || parsed == TT__STORE_BAD;
    return parsed == TT__STORE_WHOLE;
}

/* Serve the whole requests in `data`; returns how many bytes they were. */
static size_t serve_requests(tt__store_session *session, const uint8_t *data, size_t size) {
    size_t done = 0;
    if (!session->known && !detect_dialect(session, data, size))
        return 0;
    session->held = false;
    while (!session->broken) {
        session->held = session->out.size > TT__STORE_OUT_PAUSE && done < size;
        if (session->held || !begin_request(session, data + done, size - done))
            break;
        if (session->gets_left)
            tt__store_continue_gets(session, data + done);
        if (session->out.failed || session->out.size > TT__STORE_OUT_MAX)
            tt__store_session_break(session, "a reply that does not fit into memory");
        if (session->gets_left)
            continue;
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
    tt__bytes_consume(&session->in, serve_requests(session, session->in.data, session->in.size));
    if (!session->in.size)
        tt__bytes_clear(&session->in, IDLE_BUFFER);
    tt__store_session_charge(session);
}

void tt__store_session_feed(tt__store_session *session, const void *data, size_t size) {
    if (session->broken || !size)
        return;
    size_t done = session->in.size ? 0 : serve_requests(session, data, size);
    bool appended = session->in.size > 0;
    tt__bytes_put(&session->in, (const char *)data + done, size - done);
    if (session->in.failed)
        tt__store_session_break(session, "a request that does not fit into memory");
    else if (appended)
        tt__store_session_resume(session);
    tt__store_session_charge(session);
}
