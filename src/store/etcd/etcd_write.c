/* Writing to etcd, exactly once.
 *
 * When an answer is lost, because the server was killed or the connection broke, nobody knows whether the write
 * happened, and sending it again may do it twice: a count would be wrong. So each store has a marker, a key of its own,
 * and numbers its writes. Every write is a transaction that needs the marker as this store left it, and sets it to its
 * number. If the same write is sent again after it happened, or arrives late, the marker has changed: the transaction
 * does nothing, and answers with the marker, whose number says that the write did happen.
 *
 * The marker is under a lease, so that nothing stays in etcd of stores whose processes were killed. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/random_bytes.h"
#include "net/secure/secret.h"
#include "store/etcd/etcd_store.h"
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARKER_SECONDS = 24 * 3600, /* longer than any call waits */
    ANSWER_ROOM = 64 * 1024 + 2 * (int)TT__ETCD_MAX_VALUE,
    PATIENT_TRIES = 3, /* before a store gives way to others that change the same key */
    LONGEST_PAUSE_MS = 64,
    DROP_MS = 1000,
    LEASE_ROOM = 64 * 1024 /* for an answer about a lease */
};

/* ---- leases */

static tt_status lease_call(tt__etcd_client *client, const char *path, const char *name, int64_t number,
                            int64_t deadline_ms, tt__span *answer) {
    char body[64];
    int size = snprintf(body, sizeof body, "{\"%s\":\"%" PRId64 "\"}", name, number);
    return tt__etcd_call(client, path, (tt__span){(const uint8_t *)body, (size_t)size}, LEASE_ROOM, deadline_ms,
                         answer);
}

static bool read_number(tt__span object, const char *name, int64_t *number) {
    tt__span member;
    return tt__json_member(object, name, &member) && tt__json_i64(member, number);
}

tt_status tt__etcd_grant(tt__etcd_client *client, int64_t seconds, int64_t deadline_ms, int64_t *id, int64_t *granted) {
    tt__span answer;
    int64_t ttl;
    TT__TRY(lease_call(client, "/v3/lease/grant", "TTL", seconds, deadline_ms, &answer));
    if (!read_number(answer, "ID", id) || !read_number(answer, "TTL", &ttl))
        return tt__fail(TT_ERR_PROTOCOL, "%s: expected a lease from /v3/lease/grant, got none",
                        client->urls[client->current]);
    if (granted)
        *granted = ttl;
    return TT_OK;
}

tt_status tt__etcd_renew_lease(tt__etcd_client *client, int64_t id, int64_t deadline_ms) {
    tt__span answer, result;
    int64_t ttl = 0;
    TT__TRY(lease_call(client, "/v3/lease/keepalive", "ID", id, deadline_ms, &answer));
    if (!tt__json_member(answer, "result", &result))
        return tt__fail(TT_ERR_PROTOCOL, "%s: expected the lease's state from /v3/lease/keepalive, got none",
                        client->urls[client->current]);
    if (!read_number(result, "TTL", &ttl) || ttl <= 0) /* left out: 0 */
        return tt__fail(TT_ERR_STATE, "the lease has ended, and its keys are gone: it was not kept alive in time");
    return TT_OK;
}

tt_status tt__etcd_revoke(tt__etcd_client *client, int64_t id, int64_t deadline_ms) {
    tt__span answer;
    tt_status status = lease_call(client, "/v3/lease/revoke", "ID", id, deadline_ms, &answer);
    return status && client->code == TT__ETCD_NOT_FOUND ? TT_OK : status;
}

/* ---- the marker */

static tt_status name_marker(tt__etcd_store *store) {
    unsigned char bytes[16];
    TT__TRY(tt__random_bytes(bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(store->marker.name + 2 * i, 3, "%02x", bytes[i]);
    return TT_OK;
}

/* Make a lease for the marker, which is missing at first. */
static void obtain_lease(tt__etcd_turn *turn) {
    tt__etcd_store *store = turn->store;
    if (!turn->status && !*store->marker.name)
        turn->status = name_marker(store);
    if (!turn->status && !store->marker.lease)
        turn->status = tt__etcd_grant(&store->client, MARKER_SECONDS, turn->deadline_ms, &store->marker.lease, NULL);
}

void tt__etcd_drop_marker(tt__etcd_store *store) {
    tt__saved_error saved;
    if (!store->marker.lease)
        return;
    tt__error_save(&saved);
    tt_ignore(tt__etcd_revoke(&store->client, store->marker.lease, tt__deadline_ms(DROP_MS)));
    tt__error_restore(&saved);
}

/* ---- requests */

static void put_compare(tt__bytes *body, const char *target, const char *result, const char *member, int64_t number) {
    tt__etcd_put_text(body, ",\"target\":\"");
    tt__etcd_put_text(body, target);
    tt__etcd_put_text(body, "\",\"result\":\"");
    tt__etcd_put_text(body, result);
    tt__etcd_put_text(body, "\",\"");
    tt__etcd_put_text(body, member);
    tt__etcd_put_text(body, "\":\"");
    tt__etcd_put_i64(body, number);
    tt__etcd_put_text(body, "\"}");
}

/* {"compare": the marker, the key, "success": the write, the marker's new number, "failure": read the marker, the
 * key}. */
static void put_transaction(tt__bytes *body, const tt__etcd_store *store, const tt__etcd_write *write) {
    char number[24];
    int size = snprintf(number, sizeof number, "%" PRId64, store->marker.writes);
    tt__etcd_put_text(body, "{\"compare\":[{");
    tt__etcd_put_marker(body, store);
    put_compare(body, "MOD", "EQUAL", "mod_revision", store->marker.revision);
    if (write->revision != TT__ETCD_ALWAYS) {
        tt__etcd_put_text(body, ",{");
        tt__etcd_put_key(body, store, write->key);
        if (write->revision == TT__ETCD_IF_THERE)
            put_compare(body, "VERSION", "GREATER", "version", 0);
        else
            put_compare(body, "MOD", "EQUAL", "mod_revision", write->revision);
    }
    tt__etcd_put_text(body, "],\"success\":[");
    tt__bytes_put(body, write->ops->data, write->ops->size);
    tt__etcd_put_text(body, write->ops->size ? ",{\"request_put\":{" : "{\"request_put\":{");
    tt__etcd_put_marker(body, store);
    tt__etcd_put_text(body, ",\"value\":\"");
    tt__etcd_put_base64(body, number, (size_t)size);
    tt__etcd_put_text(body, "\",\"lease\":\"");
    tt__etcd_put_i64(body, store->marker.lease);
    tt__etcd_put_text(body, "\"}}],\"failure\":[{\"request_range\":{");
    tt__etcd_put_marker(body, store);
    tt__etcd_put_text(body, "}}");
    if (write->key) {
        tt__etcd_put_text(body, ",{\"request_range\":{");
        tt__etcd_put_key(body, store, write->key);
        tt__etcd_put_text(body, "}}");
    }
    tt__etcd_put_text(body, "]}");
    body->failed = body->failed || write->ops->failed;
}

void tt__etcd_put_set(tt__etcd_turn *turn, tt__bytes *ops, const char *key, tt__span value, int64_t lease) {
    if (!turn->status && value.size > TT__ETCD_MAX_VALUE)
        turn->status = tt__fail(TT_ERR_INVALID,
                                "a value of %zu bytes; at most %zu are allowed, since etcd's requests are limited to "
                                "1.5 MiB",
                                value.size, TT__ETCD_MAX_VALUE);
    if (turn->status)
        return;
    tt__etcd_put_text(ops, ops->size ? ",{\"request_put\":{" : "{\"request_put\":{");
    tt__etcd_put_key(ops, turn->store, key);
    tt__etcd_put_text(ops, ",\"value\":\"");
    tt__etcd_put_base64(ops, value.data, value.size);
    tt__etcd_put_text(ops, "\"");
    if (lease) {
        tt__etcd_put_text(ops, ",\"lease\":\"");
        tt__etcd_put_i64(ops, lease);
        tt__etcd_put_text(ops, "\"");
    }
    tt__etcd_put_text(ops, "}}");
}

/* ---- the transaction */

/* Take a key's state off the responses of the failure branch. */
static void take_write_state(tt__etcd_turn *turn, tt__span *responses, tt__etcd_kv *kv) {
    tt__span response, range, kvs;
    *kv = (tt__etcd_kv){0};
    if (!tt__json_item(responses, &response) || !tt__json_member(response, "response_range", &range) ||
        (tt__json_member(range, "kvs", &kvs) && !tt__etcd_next_kv(&kvs, kv)))
        tt__etcd_bad_answer(turn, "the state of a key");
}

/* Does the marker have the number of the current write? */
static bool is_marked(const tt__etcd_store *store, const tt__etcd_kv *marker) {
    tt__bytes value = {0};
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, store->marker.writes);
    bool same = marker->there && tt__etcd_take_base64(&value, marker->value) && value.size == strlen(number) &&
                !memcmp(value.data, number, value.size);
    tt__bytes_free(&value);
    return same;
}

/* Read why the transaction did nothing. *again: the marker differed from what this store knew; now it is known. */
static void read_failure(tt__etcd_turn *turn, const tt__etcd_write *write, tt__span answer, bool *done, bool *again,
                         tt__etcd_kv *now) {
    tt__etcd_store *store = turn->store;
    tt__etcd_kv marker, key = {0};
    tt__span responses;
    if (!tt__json_member(answer, "responses", &responses)) {
        tt__etcd_bad_answer(turn, "responses");
        return;
    }
    take_write_state(turn, &responses, &marker);
    if (!turn->status && write->key)
        take_write_state(turn, &responses, &key);
    if (turn->status)
        return;
    *done = is_marked(store, &marker);
    *again = !*done && marker.revision != store->marker.revision;
    store->marker.revision = marker.revision;
    if (now)
        *now = key;
}

/* Send the write once. */
static void commit_once(tt__etcd_turn *turn, const tt__etcd_write *write, bool *done, bool *again, tt__etcd_kv *now,
                        int64_t *revision) {
    tt__etcd_store *store = turn->store;
    tt__bytes body = {0};
    tt__span answer, flag;
    *again = false;
    put_transaction(&body, store, write);
    if (tt__etcd_post(turn, "/v3/kv/txn", &body, ANSWER_ROOM, &answer)) {
        *revision = tt__etcd_revision(answer);
        *done = tt__json_member(answer, "succeeded", &flag) && tt__json_is_true(flag);
        if (!*revision)
            tt__etcd_bad_answer(turn, "a revision");
        else if (*done)
            store->marker.revision = *revision;
        else
            read_failure(turn, write, answer, done, again, now);
    }
    tt__bytes_free(&body);
}

void tt__etcd_commit(tt__etcd_turn *turn, const tt__etcd_write *write, bool *done, tt__etcd_kv *now,
                     int64_t *revision) {
    tt__etcd_store *store = turn->store;
    int64_t ignored;
    bool renewed = false;
    *done = false;
    obtain_lease(turn);
    store->marker.writes++;
    for (bool again = true; again && !turn->status;) {
        commit_once(turn, write, done, &again, now, revision ? revision : &ignored);
        /* The lease may be gone: the process was suspended for a day, or etcd was emptied. */
        if (turn->status == TT_ERR_NET && store->client.code == TT__ETCD_NOT_FOUND && !renewed) {
            turn->status = TT_OK;
            store->marker.lease = 0;
            obtain_lease(turn);
            renewed = again = true;
        }
    }
}

/* ---- read, decide, write */

static void pause_for_others(tt__etcd_turn *turn, int tries) {
    unsigned char dice = 0;
    int64_t left = tt__left_ms(turn->deadline_ms);
    int64_t longest = tries < 6 ? 1 << tries : LONGEST_PAUSE_MS;
    if (!turn->status)
        turn->status = tt__random_bytes(&dice, 1);
    int64_t pause_us = longest * 1000 * dice / 256;
    pause_us = pause_us < left * 1000 ? pause_us : left * 1000;
    tt__sleep_us(pause_us);
}

/* Copy a key's state out of the answer. */
static void keep_state(tt__etcd_turn *turn, const tt__etcd_kv *kv, tt__bytes *value) {
    tt__bytes_clear(value, SIZE_MAX);
    if (!turn->status && kv->there && !tt__etcd_take_base64(value, kv->value))
        tt__etcd_bad_answer(turn, "a value in base64");
    if (value->failed)
        tt__etcd_no_memory(turn);
}

static void found_state(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv) {
    (void)turn;
    (void)i;
    *(tt__etcd_kv *)user = *kv;
}

void tt__etcd_modify(tt__etcd_turn *turn, const char *key, int64_t lease, tt__etcd_decide decide, void *user,
                     int64_t *revision) {
    tt__bytes now = {0}, next = {0}, ops = {0};
    tt__etcd_kv state = {0};
    bool known = false, done = false; /* guess first that the key is missing: if so, one request is enough */
    for (int tries = 0; !turn->status && !done; tries++) {
        if (tries > PATIENT_TRIES)
            pause_for_others(turn, tries - PATIENT_TRIES);
        tt__bytes_clear(&next, SIZE_MAX);
        tt__bytes_clear(&ops, SIZE_MAX);
        bool writes = !turn->status && decide(turn, user, state.there ? &now : NULL, &next);
        if (next.failed)
            tt__etcd_no_memory(turn);
        if (!writes && (known || turn->status))
            break;
        if (writes) {
            tt__etcd_put_set(turn, &ops, key, (tt__span){next.data, next.size}, lease);
            tt__etcd_write write = {&ops, key, state.revision};
            if (!turn->status)
                tt__etcd_commit(turn, &write, &done, &state, revision);
        } else {
            int64_t at;
            tt__etcd_look(turn, &key, 1, true, &at, found_state, &state);
        }
        known = true;
        if (!turn->status && !done)
            keep_state(turn, &state, &now);
    }
    tt__bytes_free(&now);
    tt__bytes_free(&next);
    tt__bytes_free(&ops);
}

/* ---- compare_set */

typedef struct swapping {
    tt__span expected, desired;
    tt__bytes result;
} swapping;

static bool decide_swap(tt__etcd_turn *turn, void *user, const tt__bytes *now, tt__bytes *next) {
    swapping *s = user;
    bool same = now ? now->size == s->expected.size && (!now->size || !memcmp(now->data, s->expected.data, now->size))
                    : !s->expected.size;
    tt__span result = same ? s->desired : now ? (tt__span){now->data, now->size} : s->expected;
    if (same)
        tt__bytes_put(next, s->desired.data, s->desired.size);
    tt__bytes_clear(&s->result, SIZE_MAX);
    tt__bytes_put(&s->result, result.data, result.size);
    tt__bytes_put(&s->result, "", 1);
    if (s->result.failed)
        tt__etcd_no_memory(turn);
    return same;
}

void tt__etcd_compare_set_in(tt__etcd_turn *turn, const char *key, tt__span expected, tt__span desired, int64_t lease,
                             tt_store_value *value) {
    swapping s = {.expected = expected, .desired = desired};
    tt__etcd_modify(turn, key, lease, decide_swap, &s, NULL);
    if (turn->status)
        tt__bytes_free(&s.result);
    else
        *value = (tt_store_value){s.result.data, s.result.size - 1};
}
