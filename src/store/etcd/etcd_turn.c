/* A call's turn on an etcd store: its requests, what their answers hold, and the operations that only read. What they
 * read is never older than the call, because etcd's reads are linearizable unless one asks for less. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "store/etcd/etcd_store.h"
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"

#include <stdlib.h>
#include <string.h>

tt__etcd_turn tt__etcd_begin(tt_store *base, const char *const *keys, size_t n, int64_t timeout_ms) {
    tt__etcd_store *store = (tt__etcd_store *)base;
    tt__etcd_turn turn = {.store = store, .timeout_ms = timeout_ms ? timeout_ms : store->timeout_ms};
    turn.deadline_ms = tt__deadline_ms(turn.timeout_ms);
    for (size_t i = 0; i < n && !turn.status; i++)
        if (strlen(keys[i]) > TT_STORE_MAX_KEY - 1)
            turn.status = tt__fail(TT_ERR_INVALID, "a key of %zu bytes; at most %zu are allowed, prefixes included",
                                   strlen(keys[i]), TT_STORE_MAX_KEY - 1);
    if (!turn.status)
        turn.status = tt__call_lock_take(&store->lock, turn.deadline_ms);
    turn.locked = !turn.status;
    return turn;
}

tt_status tt__etcd_end(tt__etcd_turn *turn, const char *what, const char *key) {
    if (turn->status && key)
        tt__fail_prefix("etcd store: %s \"%.200s\"", what, key);
    else if (turn->status)
        tt__fail_prefix("etcd store: %s", what);
    if (turn->locked)
        tt__call_lock_release(&turn->store->lock);
    return turn->status;
}

void tt__etcd_no_memory(tt__etcd_turn *turn) {
    if (!turn->status)
        turn->status = tt__fail(TT_ERR_MEMORY, "out of memory");
}

void tt__etcd_bad_answer(tt__etcd_turn *turn, const char *expected) {
    const tt__etcd_client *client = &turn->store->client;
    if (!turn->status)
        turn->status = tt__fail(TT_ERR_PROTOCOL, "%s: expected %s in etcd's answer, got something else",
                                client->urls[client->current], expected);
}

bool tt__etcd_post(tt__etcd_turn *turn, const char *path, const tt__bytes *body, size_t max_answer, tt__span *answer) {
    if (body->failed)
        tt__etcd_no_memory(turn);
    if (!turn->status)
        turn->status = tt__etcd_call(&turn->store->client, path, (tt__span){body->data, body->size}, max_answer,
                                     turn->deadline_ms, answer);
    return !turn->status;
}

/* ---- keys */

/* Append "name":"base64 of the prefix, a piece, and an end". */
static void put_whole_name(tt__bytes *out, const tt__etcd_store *store, const char *name, tt__span piece,
                           tt__span end) {
    tt__bytes whole = {0};
    tt__bytes_put(&whole, store->prefix, store->prefix_size);
    tt__bytes_put(&whole, piece.data, piece.size);
    tt__bytes_put(&whole, end.data, end.size);
    out->failed = out->failed || whole.failed;
    tt__etcd_put_text(out, name);
    tt__etcd_put_base64(out, whole.data, whole.size);
    tt__etcd_put_text(out, "\"");
    tt__bytes_free(&whole);
}

static tt__span span_of_text(const char *text) { return (tt__span){(const uint8_t *)text, strlen(text)}; }

static const tt__span nothing = {NULL, 0}, zero_byte = {(const uint8_t *)"", 1};

void tt__etcd_put_key(tt__bytes *out, const tt__etcd_store *store, const char *key) {
    put_whole_name(out, store, "\"key\":\"", span_of_text(key), nothing);
}

void tt__etcd_put_keys(tt__bytes *out, const tt__etcd_store *store, const char *from, const char *to) {
    tt__etcd_put_key(out, store, from);
    put_whole_name(out, store, ",\"range_end\":\"", span_of_text(to), zero_byte);
}

void tt__etcd_put_marker(tt__bytes *out, const tt__etcd_store *store) {
    put_whole_name(out, store, "\"key\":\"", zero_byte, span_of_text(store->marker.name));
}

/* Append the first name after all that begin with the store's prefix, which ends with a slash. */
void tt__etcd_put_end(tt__bytes *out, const tt__etcd_store *store) {
    static const uint8_t after_slash[] = {'/' + 1};
    tt__bytes end = {0};
    tt__bytes_put(&end, store->prefix, store->prefix_size - 1);
    tt__bytes_put(&end, after_slash, sizeof after_slash);
    out->failed = out->failed || end.failed;
    tt__etcd_put_text(out, ",\"range_end\":\"");
    tt__etcd_put_base64(out, end.data, end.size);
    tt__etcd_put_text(out, "\"");
    tt__bytes_free(&end);
}

/* ---- answers */

int64_t tt__etcd_revision(tt__span answer) {
    tt__span header, revision;
    int64_t number = 0;
    if (!tt__json_member(answer, "header", &header) || !tt__json_member(header, "revision", &revision) ||
        !tt__json_i64(revision, &number))
        return 0;
    return number;
}

bool tt__etcd_next_kv(tt__span *kvs, tt__etcd_kv *kv) {
    tt__span item, member;
    *kv = (tt__etcd_kv){0};
    if (!tt__json_item(kvs, &item))
        return false;
    kv->there = tt__json_member(item, "key", &member) && tt__json_string(member, &kv->key);
    if (tt__json_member(item, "value", &member)) /* an empty one is left out */
        kv->there = kv->there && tt__json_string(member, &kv->value);
    kv->there = kv->there && tt__json_member(item, "mod_revision", &member) && tt__json_i64(member, &kv->revision);
    return kv->there;
}

bool tt__etcd_key_of(const tt__etcd_store *store, const tt__etcd_kv *kv, tt__bytes *key) {
    tt__bytes_clear(key, SIZE_MAX);
    if (!tt__etcd_take_base64(key, kv->key) || key->size < store->prefix_size ||
        memcmp(key->data, store->prefix, store->prefix_size) != 0)
        return false;
    tt__bytes_consume(key, store->prefix_size);
    if (memchr(key->data, '\0', key->size))
        return false; /* a marker, or a key that this interface can't name */
    tt__bytes_put(key, "", 1);
    return !key->failed;
}

void tt__etcd_value_of(tt__etcd_turn *turn, const tt__etcd_kv *kv, tt_store_value *value) {
    tt__bytes bytes = {0};
    bool good = tt__etcd_take_base64(&bytes, kv->value);
    tt__bytes_put(&bytes, "", 1);
    if (!turn->status && bytes.failed)
        tt__etcd_no_memory(turn);
    else if (!turn->status && !good)
        tt__etcd_bad_answer(turn, "a value in base64");
    if (turn->status) {
        tt__bytes_free(&bytes);
        return;
    }
    tt_store_value_free(value);
    *value = (tt_store_value){bytes.data, bytes.size - 1};
}

/* ---- reading ---- */

enum {
    BATCH = 50, /* keys read with their values at once */
    KEYS = 100, /* keys looked for at once: a transaction may have 128 operations */
    PAGE = 500, /* keys of a scan's page */
    KEY_ROOM = 16 * 1024,
    SMALL_ANSWER = 64 * 1024
};

/* Return the most bytes of an answer about `keys` keys: base64 of what etcd's own limit allows, and numbers. */
static size_t answer_room(size_t keys, bool values) {
    return SMALL_ANSWER + keys * (KEY_ROOM + (values ? TT__ETCD_MAX_VALUE * 2 : 0));
}

/* One batch of tt__etcd_look(). */
static void look_at_batch(tt__etcd_turn *turn, const char *const *keys, size_t n, bool values, tt__span *answer) {
    tt__bytes body = {0};
    tt__etcd_put_text(&body, "{\"success\":[");
    for (size_t i = 0; i < n; i++) {
        tt__etcd_put_text(&body, i ? ",{\"request_range\":{" : "{\"request_range\":{");
        tt__etcd_put_key(&body, turn->store, keys[i]);
        tt__etcd_put_text(&body, values ? "}}" : ",\"keys_only\":true}}");
    }
    tt__etcd_put_text(&body, "]}");
    tt__etcd_post(turn, "/v3/kv/txn", &body, answer_room(n, values), answer);
    tt__bytes_free(&body);
}

void tt__etcd_look(tt__etcd_turn *turn, const char *const *keys, size_t n, bool values, int64_t *revision,
                   void (*found)(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv), void *user) {
    *revision = 0;
    const size_t most = values ? BATCH : KEYS;
    for (size_t i = 0; i < n && !turn->status; i += most) {
        size_t batch = n - i < most ? n - i : most;
        tt__span answer = {0}, responses, response, range, kvs;
        look_at_batch(turn, keys + i, batch, values, &answer);
        if (turn->status)
            return;
        *revision = *revision ? *revision : tt__etcd_revision(answer);
        if (!*revision || !tt__json_member(answer, "responses", &responses)) {
            tt__etcd_bad_answer(turn, "a revision and responses");
            return;
        }
        for (size_t k = 0; k < batch && !turn->status; k++) {
            tt__etcd_kv kv = {0};
            if (!tt__json_item(&responses, &response) || !tt__json_member(response, "response_range", &range))
                tt__etcd_bad_answer(turn, "a response for each key");
            else if (tt__json_member(range, "kvs", &kvs) && !tt__etcd_next_kv(&kvs, &kv))
                tt__etcd_bad_answer(turn, "a key and its value");
            else
                found(turn, user, i + k, &kv);
        }
    }
}

void tt__etcd_count(tt__etcd_turn *turn, int64_t *count) {
    tt__bytes body = {0};
    tt__span answer, responses, response, range, number;
    tt__etcd_put_text(&body, "{\"success\":[{\"request_range\":{");
    tt__etcd_put_key(&body, turn->store, "");
    tt__etcd_put_text(&body, ",\"count_only\":true}},{\"request_range\":{");
    tt__etcd_put_key(&body, turn->store, "\1"); /* the first key after the markers */
    tt__etcd_put_end(&body, turn->store);
    tt__etcd_put_text(&body, ",\"count_only\":true}}]}");
    *count = 0;
    if (tt__etcd_post(turn, "/v3/kv/txn", &body, SMALL_ANSWER, &answer)) {
        if (!tt__json_member(answer, "responses", &responses))
            tt__etcd_bad_answer(turn, "responses");
        while (!turn->status && tt__json_item(&responses, &response)) {
            int64_t some = 0;
            if (!tt__json_member(response, "response_range", &range))
                tt__etcd_bad_answer(turn, "a range");
            else if (tt__json_member(range, "count", &number) && !tt__json_i64(number, &some))
                tt__etcd_bad_answer(turn, "a number of keys");
            *count += some;
        }
    }
    tt__bytes_free(&body);
}

/* Ask for a page of a scan: what follows `last` (base64), or the first one. */
static bool ask_page(tt__etcd_turn *turn, const tt__bytes *last, int64_t revision, tt__span *answer) {
    tt__bytes body = {0};
    tt__etcd_put_text(&body, "{");
    if (last->size) {
        tt__etcd_put_text(&body, "\"key\":\"");
        tt__etcd_put_base64(&body, last->data, last->size);
        tt__etcd_put_text(&body, "\"");
    } else {
        tt__etcd_put_key(&body, turn->store, "");
    }
    tt__etcd_put_end(&body, turn->store);
    if (last->size) {
        tt__etcd_put_text(&body, ",\"revision\":\"");
        tt__etcd_put_i64(&body, revision);
        tt__etcd_put_text(&body, "\"");
    }
    tt__etcd_put_text(&body, ",\"keys_only\":true,\"limit\":\"");
    tt__etcd_put_i64(&body, PAGE);
    tt__etcd_put_text(&body, "\"}");
    bool good = tt__etcd_post(turn, "/v3/kv/range", &body, answer_room(PAGE, false), answer);
    tt__bytes_free(&body);
    return good;
}

void tt__etcd_scan(tt__etcd_turn *turn, void (*found)(tt__etcd_turn *turn, void *user, const tt__etcd_kv *kv),
                   void *user) {
    tt__bytes last = {0};
    int64_t revision = 0;
    for (bool more = true; more && !turn->status;) {
        tt__span answer, kvs = {0}, flag;
        if (!ask_page(turn, &last, revision, &answer))
            break;
        revision = revision ? revision : tt__etcd_revision(answer);
        tt__etcd_kv kv, end = {0};
        if (tt__json_member(answer, "kvs", &kvs))
            while (!turn->status && tt__etcd_next_kv(&kvs, &kv)) {
                found(turn, user, &kv);
                end = kv;
            }
        more = tt__json_member(answer, "more", &flag) && tt__json_is_true(flag);
        tt__bytes_clear(&last, SIZE_MAX);
        if (!revision || (more && (!end.there || !tt__etcd_take_base64(&last, end.key))))
            tt__etcd_bad_answer(turn, "a revision, and keys on a page that has a next one");
        tt__bytes_put(&last, "", 1); /* with a zero byte more, it is the key that follows */
        if (last.failed)
            tt__etcd_no_memory(turn);
    }
    tt__bytes_free(&last);
}
