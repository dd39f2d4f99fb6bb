#include "store/etcd/etcd_store.h"

#include "base/error.h"
#include "base/machine/clock.h"
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

/* The first name that no longer begins with these bytes: the last of them is one higher, those that can't be are left
 * out. */
void tt__etcd_put_end(tt__bytes *out, const tt__etcd_store *store, const char *prefix) {
    tt__bytes end = {0};
    tt__bytes_put(&end, store->prefix, store->prefix_size);
    tt__bytes_put(&end, prefix, strlen(prefix));
    while (!end.failed && end.size && end.data[end.size - 1] == 0xff)
        end.size--;
    if (!end.failed && end.size)
        end.data[end.size - 1]++;
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
