#include "store/replica_state.h"

#include "store/operations.h"
#include "store/replica_words.h"
#include "store/waiters.h"

#include <stdio.h>
#include <string.h>

enum { KIND_NONE, KIND_READS, KIND_WRITES };

static const uint8_t kinds[TT__STORE_OP_COUNT] = {
    [TT__STORE_SET] = KIND_WRITES,        [TT__STORE_COMPARE_SET] = KIND_WRITES, [TT__STORE_ADD] = KIND_WRITES,
    [TT__STORE_DELETE_KEY] = KIND_WRITES, [TT__STORE_APPEND] = KIND_WRITES,      [TT__STORE_MULTI_SET] = KIND_WRITES,
    [TT__STORE_QUEUE_PUSH] = KIND_WRITES, [TT__STORE_QUEUE_POP] = KIND_WRITES,   [TT__STORE_GET] = KIND_READS,
    [TT__STORE_CHECK] = KIND_READS,       [TT__STORE_NUM_KEYS] = KIND_READS,     [TT__STORE_QUEUE_LEN] = KIND_READS,
    [TT__STORE_LIST_KEYS] = KIND_READS,
};

void tt__replica_state_init(tt__replica_state *state, tt__store_service *service) {
    state->service = service;
    service->max_value = TT__REPLICA_MAX_REQUEST; /* what is answered is as large */
    tt__store_table_init(&state->recent);
    tt__store_table_init(&state->before);
    state->answers = 0;
}

static void cancel_waits(tt__store_service *service) {
    tt__list_node *sessions = &service->sessions;
    for (tt__list_node *node = sessions->next; node != sessions; node = node->next)
        tt__store_wait_cancel((tt__store_session *)(void *)((char *)node - offsetof(tt__store_session, node)));
}

void tt__replica_empty(tt__replica_state *state) {
    tt__store_service *service = state->service;
    cancel_waits(service);
    tt__replica_state_free(state);
    tt__store_table_free(&service->table);
    tt__store_table_init(&service->table);
    tt__replica_state_init(state, service);
}

void tt__replica_state_free(tt__replica_state *state) {
    tt__store_table_free(&state->recent);
    tt__store_table_free(&state->before);
}

bool tt__replica_request_good(tt__span request, bool *writes, char why[TT__STORE_WHY_SIZE]) {
    tt__store_parser parser = {0};
    tt__store_parsed parsed = tt__store_parse(&parser, TT_STORE_TORCH_2, request.data, request.size, why);
    if (parsed == TT__STORE_BAD)
        return false;
    if (parsed == TT__STORE_MORE || parser.pos != request.size) {
        snprintf(why, TT__STORE_WHY_SIZE, "%zu bytes that are not one whole request", request.size);
        return false;
    }
    *writes = kinds[parser.op] == KIND_WRITES;
    if (kinds[parser.op] == KIND_NONE)
        snprintf(why, TT__STORE_WHY_SIZE, "a store of several replicas has no %s", tt__store_op_table[parser.op].name);
    return kinds[parser.op] != KIND_NONE;
}

void tt__replica_put_answer(tt__bytes *answer, uint8_t status, tt__span words) {
    tt__store_put_u8(answer, status);
    tt__store_put_string(answer, words);
}

/* Carry out a request as a client of its own does. False: memory is out. */
static bool execute_alone(tt__store_service *service, tt__span request, tt__bytes *answer) {
    tt__store_session session;
    tt__store_parser parser = {0};
    char why[TT__STORE_WHY_SIZE];
    if (tt__store_parse(&parser, TT_STORE_TORCH_2, request.data, request.size, why) != TT__STORE_WHOLE)
        return false;
    tt__store_session_init(&session, service, NULL);
    session.agreed = true;
    tt__store_execute(&session, &parser, request.data);
    bool whole = !session.out.failed && strcmp(session.why, TT__STORE_NO_MEMORY) != 0;
    if (session.broken)
        tt__replica_put_answer(answer, TT__STORE_REFUSED,
                               (tt__span){(const uint8_t *)session.why, strlen(session.why)});
    else
        tt__replica_put_answer(answer, TT__STORE_DONE, (tt__span){session.out.data, session.out.size});
    tt__bytes_free(&session.living); /* nothing here ends with a connection */
    tt__store_session_end(&session);
    return whole && !answer->failed;
}

void tt__replica_read(tt__replica_state *state, tt__span request, tt__bytes *answer) {
    execute_alone(state->service, request, answer);
}

void tt__replica_put_entry(tt__bytes *out, uint64_t client, uint64_t number, tt__span request) {
    tt__store_put_u64(out, client);
    tt__store_put_u64(out, number);
    tt__bytes_put(out, request.data, request.size);
}

bool tt__replica_entry_good(tt__span entry) {
    char why[TT__STORE_WHY_SIZE];
    bool writes = false;
    tt__replica_reader reader = {.rest = entry};
    tt__replica_take(&reader, 8);
    uint64_t number = tt__replica_take(&reader, 8);
    return number && reader.rest.size <= TT__REPLICA_MAX_REQUEST &&
           tt__replica_request_good(reader.rest, &writes, why) && writes;
}

/* Note a client's last write. */
static bool note_answer(tt__replica_state *state, tt__span client, uint64_t number, const tt__bytes *answer) {
    tt__bytes value = {0};
    bool full = state->recent.present >= TT__REPLICA_CLIENTS || state->answers >= TT__REPLICA_ANSWERS;
    if (full && !tt__store_table_find(&state->recent, client)) {
        tt__store_table_free(&state->before);
        state->before = state->recent;
        tt__store_table_init(&state->recent);
        state->answers = 0;
    }
    tt__store_put_u64(&value, number);
    tt__bytes_put(&value, answer->data, answer->size);
    tt__store_entry *entry = value.failed ? NULL : tt__store_table_obtain(&state->recent, client);
    size_t former = entry && entry->present ? entry->value.size : 0;
    bool noted = entry && tt__store_entry_assign(&state->recent, entry, (tt__span){value.data, value.size});
    state->answers += value.size - former;
    tt__bytes_free(&value);
    return noted;
}

bool tt__replica_apply(tt__replica_state *state, tt__span entry, tt__bytes *answer) {
    tt__replica_reader reader = {.rest = entry};
    const tt__span client = {entry.data, 8};
    tt__replica_take(&reader, 8);
    uint64_t number = tt__replica_take(&reader, 8);
    if (reader.bad)
        return false;
    const tt__store_entry *noted = tt__store_table_find(&state->recent, client);
    if (!noted)
        noted = tt__store_table_find(&state->before, client);
    uint64_t last = noted ? tt__store_number(noted->value.data, 8) : 0;
    if (noted && number == last) {
        tt__bytes_put(answer, noted->value.data + 8, noted->value.size - 8);
        return !answer->failed;
    }
    if (number < last) {
        static const char why[] = "a write that the client has given up, as it has sent another one since";
        tt__replica_put_answer(answer, TT__STORE_REFUSED, (tt__span){(const uint8_t *)why, sizeof why - 1});
        return !answer->failed;
    }
    return execute_alone(state->service, reader.rest, answer) && note_answer(state, client, number, answer);
}

/* ---- as bytes */

static void save_table(const tt__store_table *table, tt__bytes *out) {
    tt__store_put_u64(out, table->kept);
    for (size_t i = 0; i < table->bucket_count; i++)
        for (const tt__store_entry *e = table->buckets[i]; e; e = e->next) {
            if (!e->kept)
                continue;
            tt__store_put_string(out, tt__store_entry_key(e));
            tt__store_put_u8(out, e->present);
            if (e->present)
                tt__store_put_string(out, tt__store_entry_value(e));
            tt__store_put_u64(out, e->queued);
            for (const tt__store_item *item = e->first; item; item = item->next)
                tt__store_put_string(out, (tt__span){item->data, item->size});
        }
}

bool tt__replica_save(const tt__replica_state *state, tt__bytes *out) {
    save_table(&state->service->table, out);
    save_table(&state->recent, out);
    save_table(&state->before, out);
    return !out->failed;
}

/* Of a client: the number of its last write, and the answer to it. */
static bool answer_good(tt__span value) {
    tt__replica_reader reader = {.rest = value};
    tt__replica_take(&reader, 8);
    tt__replica_take(&reader, 1);
    tt__replica_take_span(&reader);
    return !reader.bad && !reader.rest.size;
}

/* Read a table as it was written; one of answers, or of keys. */
static bool table_good(tt__replica_reader *reader, bool answers) {
    bool good = true;
    for (uint64_t left = tt__replica_take(reader, 8); left && good && !reader->bad; left--) {
        tt__span key = tt__replica_take_span(reader), value = {0};
        bool present = tt__replica_take(reader, 1) != 0;
        if (present)
            value = tt__replica_take_span(reader);
        uint64_t queued = tt__replica_take(reader, 8);
        good = answers ? key.size == 8 && present && !queued && answer_good(value) : key.size <= TT_STORE_MAX_KEY;
        for (; queued && !reader->bad; queued--)
            tt__replica_take_span(reader);
    }
    return good && !reader->bad;
}

bool tt__replica_saved_good(tt__span saved) {
    tt__replica_reader reader = {.rest = saved};
    return table_good(&reader, false) && table_good(&reader, true) && table_good(&reader, true) && !reader.rest.size;
}

static bool restore_entry(tt__store_table *table, tt__replica_reader *reader) {
    tt__store_entry *entry = tt__store_table_obtain(table, tt__replica_take_span(reader));
    bool good = entry != NULL;
    if (good && tt__replica_take(reader, 1))
        good = tt__store_entry_assign(table, entry, tt__replica_take_span(reader));
    for (uint64_t left = good ? tt__replica_take(reader, 8) : 0; good && !reader->bad && left; left--)
        good = tt__store_entry_push(table, entry, tt__replica_take_span(reader));
    if (entry)
        tt__store_table_settle(table, entry);
    return good && !reader->bad;
}

static bool restore_table(tt__store_table *table, tt__replica_reader *reader) {
    uint64_t left = tt__replica_take(reader, 8);
    while (left && !reader->bad && restore_entry(table, reader))
        left--;
    return !left && !reader->bad;
}

static size_t value_bytes_of(const tt__store_table *table) {
    size_t bytes = 0;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (const tt__store_entry *e = table->buckets[i]; e; e = e->next)
            bytes += e->present ? e->value.size : 0;
    return bytes;
}

bool tt__replica_restore(tt__replica_state *state, tt__span saved) {
    tt__replica_reader reader = {.rest = saved};
    if (!tt__replica_saved_good(saved))
        return false;
    tt__replica_empty(state);
    bool good = restore_table(&state->service->table, &reader) && restore_table(&state->recent, &reader) &&
                restore_table(&state->before, &reader) && !reader.rest.size;
    state->answers = value_bytes_of(&state->recent);
    return good;
}
