/* A session cuts its client's bytes into requests, and carries them out. Where PyTorch's two daemons differ, its libuv
 * one is followed: a compare_set that stores releases waiters, and a missing key reads as empty. */
#include "store/server/renewal.h"
#include "store/server/service.h"
#include "store/server/waiters.h"

#include "base/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers of an idle connection are not larger than this. */
enum { IDLE_BUFFER = 4096 };

typedef struct request {
    tt__store_session *session;
    tt__store_table *table;
    tt__store_fields fields;
    uint64_t count;
    const uint8_t *data; /* where the request begins */
} request;

/* May the entry take `more` bytes? If not, the client is closed, because its protocol knows no errors, and an empty
 * entry is freed. */
static bool have_room(request *r, tt__store_entry *entry, size_t more) {
    if (tt__store_has_room(r->session, more))
        return true;
    tt__store_table_settle(r->table, entry);
    return false;
}

static void break_no_memory(request *r) { tt__store_session_break(r->session, TT__STORE_NO_MEMORY); }

static tt__store_entry *obtain_entry(request *r, tt__span key) {
    tt__store_entry *entry = tt__store_table_obtain(r->table, key);
    if (!entry)
        break_no_memory(r);
    return entry;
}

static tt__span value_or_empty(const tt__store_entry *entry) {
    return entry && entry->present ? tt__store_entry_value(entry) : (tt__span){0};
}

/* Note a key that ends with the client. If memory is out, the key stays, and its readers see later that the client is
 * gone. */
static void note_living(tt__store_session *session, tt__span key) {
    if (!session->living.size && tt__store_key_begins(key, TT__STORE_LIVING))
        tt__bytes_put(&session->living, key.data, key.size);
}

/* Set a value. Watchers are notified first, while the old value is there. */
static void store_value(request *r, tt__store_entry *entry, tt__span value) {
    if (!have_room(r, entry, value.size > entry->value.capacity ? value.size - entry->value.capacity : 0))
        return;
    tt__store_notify(entry, entry->present ? TT__STORE_UPDATED : TT__STORE_CREATED, value_or_empty(entry), value);
    if (!tt__store_entry_assign(r->table, entry, value)) {
        tt__store_table_settle(r->table, entry);
        break_no_memory(r);
        return;
    }
    if (TT__MUTANT(renewed_store_keeps_clients) || tt__store_key_begins(tt__store_entry_key(entry), TT__STORE_LASTING))
        r->session->lasting = true;
    note_living(r->session, tt__store_entry_key(entry));
    tt__store_release_waiters(entry);
}

static void do_validate(request *r) {
    if (r->session->validated)
        tt__store_session_break(r->session, "a second VALIDATE");
    r->session->validated = true;
}

static void do_ping(request *r) { tt__store_put_u32(&r->session->out, tt__store_take_u32(&r->fields)); }

static void do_set(request *r) {
    tt__store_entry *entry = obtain_entry(r, tt__store_take_string(&r->fields));
    if (entry)
        store_value(r, entry, tt__store_take_string(&r->fields));
}

static bool spans_equal(tt__span a, tt__span b) {
    return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

static void do_compare_set(request *r) {
    tt__span key = tt__store_take_string(&r->fields);
    tt__span expected = tt__store_take_string(&r->fields);
    tt__span desired = tt__store_take_string(&r->fields);
    tt__store_entry *entry = tt__store_table_find(r->table, key);
    bool present = entry && entry->present;
    if (present ? !spans_equal(tt__store_entry_value(entry), expected) : expected.size > 0) {
        tt__store_put_string(&r->session->out, present ? tt__store_entry_value(entry) : expected);
        return;
    }
    if (!entry && !(entry = obtain_entry(r, key)))
        return;
    store_value(r, entry, desired);
    tt__store_put_string(&r->session->out, desired);
}

static void do_get(request *r) {
    tt__span key = tt__store_take_string(&r->fields);
    tt__store_put_string(&r->session->out, value_or_empty(tt__store_table_find(r->table, key)));
}

/* Add `delta` to the entry; false, and the session is broken, if that is impossible. */
static bool add_number(request *r, tt__store_entry *entry, int64_t delta, int64_t *sum) {
    int64_t number;
    if (!tt__store_entry_number(entry, &number) || __builtin_add_overflow(number, delta, sum)) {
        tt__store_session_break(r->session, "ADD or BARRIER on a value that is no number, or beyond 64 bits");
        return false;
    }
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, *sum);
    store_value(r, entry, (tt__span){(uint8_t *)text, (size_t)size});
    return !r->session->broken;
}

static void do_add(request *r) {
    tt__store_entry *entry = obtain_entry(r, tt__store_take_string(&r->fields));
    int64_t sum;
    if (entry && add_number(r, entry, tt__store_take_i64(&r->fields), &sum))
        tt__store_put_u64(&r->session->out, (uint64_t)sum);
}

static void do_check(request *r) {
    bool all = true;
    for (uint64_t i = 0; i < r->count && all; i++) {
        tt__store_entry *entry = tt__store_table_find(r->table, tt__store_take_string(&r->fields));
        all = tt__store_entry_there(entry);
    }
    tt__store_put_u8(&r->session->out, all ? TT__STORE_READY : TT__STORE_NOT_READY);
}

static void do_wait(request *r) { tt__store_wait_begin(r->session, r->fields, r->count); }

static void do_cancel_wait(request *r) {
    tt__store_wait_cancel(r->session);
    tt__store_put_u8(&r->session->out, TT__STORE_WAIT_CANCELED);
}

static void do_num_keys(request *r) { tt__store_put_u64(&r->session->out, r->table->present); }

static void do_watch_key(request *r) {
    tt__store_entry *entry = obtain_entry(r, tt__store_take_string(&r->fields));
    if (!entry || !have_room(r, entry, 0))
        return;
    tt__store_watch_begin(r->session, entry);
    tt__store_table_settle(r->table, entry);
}

static void do_delete_key(request *r) {
    tt__store_entry *entry = tt__store_table_find(r->table, tt__store_take_string(&r->fields));
    bool present = entry && entry->present;
    if (present) {
        tt__store_notify(entry, TT__STORE_DELETED, tt__store_entry_value(entry), (tt__span){0});
        tt__store_entry_clear(r->table, entry);
        tt__store_table_settle(r->table, entry);
    }
    tt__store_put_u64(&r->session->out, present);
}

static void do_append(request *r) {
    tt__store_entry *entry = obtain_entry(r, tt__store_take_string(&r->fields));
    if (!entry)
        return;
    tt__span more = tt__store_take_string(&r->fields);
    size_t old_size = value_or_empty(entry).size;
    uint8_t type = entry->present ? TT__STORE_UPDATED : TT__STORE_CREATED;
    const size_t most = TT_STORE_MAX_VALUE;
    if (old_size > most || more.size > most - old_size) {
        tt__store_session_break(r->session, "APPEND makes a value larger than %zu bytes", most);
    } else if (!have_room(r, entry, more.size)) {
        return;
    } else if (!tt__store_entry_append(r->table, entry, more)) {
        break_no_memory(r);
    } else {
        tt__span now = tt__store_entry_value(entry);
        tt__store_notify(entry, type, (tt__span){now.data, old_size}, now);
        tt__store_release_waiters(entry);
    }
    tt__store_table_settle(r->table, entry);
}

/* Begin to answer. Small keys may name large values, so these are sent only as fast as the client reads. */
static void do_multi_get(request *r) {
    r->session->gets_left = r->count;
    r->session->gets_at = (size_t)(r->fields.at - r->data);
}

/* Continue a MULTI_GET, which lies at `data`, as far as unsent replies allow; session->gets_left keys remain. */
static void continue_gets(tt__store_session *session, const uint8_t *data) {
    request r = {
        .session = session, .table = &session->service->table, .fields = {data + session->gets_at}, .data = data};
    for (; session->gets_left && session->out.size <= TT__STORE_OUT_PAUSE; session->gets_left--)
        do_get(&r);
    session->gets_at = (size_t)(r.fields.at - data);
}

static void do_multi_set(request *r) {
    for (uint64_t i = 0; i < r->count && !r->session->broken; i++)
        do_set(r);
}

static void do_list_keys(request *r) {
    tt__store_put_u64(&r->session->out, r->table->present);
    for (size_t i = 0; i < r->table->bucket_count; i++)
        for (const tt__store_entry *e = r->table->buckets[i]; e; e = e->next)
            if (e->present)
                tt__store_put_string(&r->session->out, tt__store_entry_key(e));
}

/* Count arrivals in the key; the last one of the world opens the barrier for all. */
static void do_barrier(request *r) {
    tt__store_entry *entry = obtain_entry(r, tt__store_take_string(&r->fields));
    int64_t world_size = tt__store_take_i64(&r->fields), arrived;
    if (!entry || !add_number(r, entry, 1, &arrived))
        return;
    if (arrived < world_size) {
        tt__store_barrier_begin(r->session, entry);
        return;
    }
    tt__store_release_barrier(entry);
    tt__store_put_u8(&r->session->out, TT__STORE_STOP_WAITING);
}

static void do_queue_push(request *r) {
    tt__store_entry *entry = obtain_entry(r, tt__store_take_string(&r->fields));
    tt__span value = tt__store_take_string(&r->fields);
    if (!entry || !have_room(r, entry, sizeof(tt__store_item) + value.size))
        return;
    if (tt__store_entry_push(r->table, entry, value)) {
        tt__store_release_waiter(entry);
        return;
    }
    tt__store_table_settle(r->table, entry);
    break_no_memory(r);
}

/* Reply with how many values there were, and the oldest one, if any. Clients that want to block send WAIT first. */
static void do_queue_pop(request *r) {
    tt__store_entry *entry = tt__store_table_find(r->table, tt__store_take_string(&r->fields));
    tt__store_put_u64(&r->session->out, entry ? entry->queued : 0);
    if (!entry || !entry->queued)
        return;
    tt__store_item *item = tt__store_entry_pop(r->table, entry);
    tt__store_put_string(&r->session->out, (tt__span){item->data, item->size});
    free(item);
    tt__store_table_settle(r->table, entry);
}

static void do_queue_len(request *r) {
    const tt__store_entry *entry = tt__store_table_find(r->table, tt__store_take_string(&r->fields));
    tt__store_put_u64(&r->session->out, entry ? entry->queued : 0);
}

static void (*const handlers[TT__STORE_OP_COUNT])(request *) = {
    [TT__STORE_VALIDATE] = do_validate,
    [TT__STORE_SET] = do_set,
    [TT__STORE_COMPARE_SET] = do_compare_set,
    [TT__STORE_GET] = do_get,
    [TT__STORE_ADD] = do_add,
    [TT__STORE_CHECK] = do_check,
    [TT__STORE_WAIT] = do_wait,
    [TT__STORE_NUM_KEYS] = do_num_keys,
    [TT__STORE_WATCH_KEY] = do_watch_key,
    [TT__STORE_DELETE_KEY] = do_delete_key,
    [TT__STORE_APPEND] = do_append,
    [TT__STORE_MULTI_GET] = do_multi_get,
    [TT__STORE_MULTI_SET] = do_multi_set,
    [TT__STORE_CANCEL_WAIT] = do_cancel_wait,
    [TT__STORE_PING] = do_ping,
    [TT__STORE_QUEUE_PUSH] = do_queue_push,
    [TT__STORE_QUEUE_POP] = do_queue_pop,
    [TT__STORE_QUEUE_LEN] = do_queue_len,
    [TT__STORE_LIST_KEYS] = do_list_keys,
    [TT__STORE_BARRIER] = do_barrier,
};

/* Carry out one whole request, which lies at `data`. Replies go to the sessions' `out`. */
static void execute_request(tt__store_session *session, const tt__store_parser *parser, const uint8_t *data) {
    request r = {session, &session->service->table, tt__store_fields_of(parser, data), parser->count, data};
    handlers[parser->op](&r);
}

/* ---- sessions */

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
        execute_request(session, &session->parser, data);
    session->broken = session->broken || parsed == TT__STORE_BAD;
    return parsed == TT__STORE_WHOLE;
}

/* Serve the whole requests in `data`; return how many bytes these had. */
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
            continue_gets(session, data + done);
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
