#include "store/replica_store.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "store/call_lock.h"
#include "store/client.h"
#include "store/store_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long one replica may take: to accept (longer in each round of looking), to say whether it leads, to answer. A
 * wait is asked for anew now and then, as one that is frozen would keep it forever. */
enum { DEFAULT_MS = 300000, ACCEPT_MS = 50, ACCEPT_MOST_MS = 1600, WHO_MS = 3000, PATIENCE_MS = 5000, SLICE_MS = 2000 };
enum { LOOK_AGAIN_MS = 20, LOOK_AGAIN_MOST_MS = 200, REFUSAL_MAX = 4096, WHY_SIZE = 400 };

typedef struct replica_store {
    tt_store base;
    tt__call_lock lock; /* of all below, but for the timeout */
    tt__replica_place place;
    tt__store_access access;
    tt__store_client client; /* of the one that leads, where it is open */
    int at;                  /* which one that is */
    uint64_t id, writes;
    char why[TT__REPLICAS_MAX][WHY_SIZE]; /* that one is not the leader, in the newest round */
    _Atomic int64_t timeout_ms;
} replica_store;

/* One call in progress. */
typedef struct call {
    replica_store *store;
    int64_t deadline_ms;
    bool locked;
    tt_status status; /* of the first thing that failed */
    tt__bytes request;
    tt_store_value reply;
} call;

static int64_t sooner(int64_t deadline_ms, int64_t wait_ms) {
    int64_t then_ms = tt__deadline_ms(wait_ms);
    return then_ms < deadline_ms ? then_ms : deadline_ms;
}

/* One replica's share of the time that a call has: another must be asked as well. */
static int64_t share_of(const tt__replica_place *place, int64_t deadline_ms, int64_t most_ms) {
    int64_t ms = tt__left_ms(deadline_ms) / place->n;
    return sooner(deadline_ms, ms < most_ms ? ms : most_ms);
}

static void sleep_ms(int64_t ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- the one that leads */

static void note_why(replica_store *s, int i, const char *why) { snprintf(s->why[i], WHY_SIZE, "%s", why); }

/* The connection is of no more use. */
static void lose_leader(replica_store *s, const char *why) {
    note_why(s, s->at, why);
    tt__store_client_close(&s->client);
    s->at = (s->at + 1) % s->place.n; /* it is not the first to be asked next */
}

/* Ask whether it leads, or who does: *leader, -1 nobody. */
static tt_status ask_who(replica_store *s, int i, int *leader, int64_t deadline_ms) {
    uint8_t role[2];
    tt_store_value text = {0};
    TT__TRY(tt__store_client_begin(&s->client, TT__STORE_REPLICA_WHO));
    TT__TRY(tt__store_client_send(&s->client, deadline_ms));
    TT__TRY(tt__store_client_read(&s->client, role, sizeof role, deadline_ms));
    TT__TRY(tt__store_client_read_string(&s->client, &text, REFUSAL_MAX, deadline_ms));
    *leader = role[0] ? i : role[1] < s->place.n && role[1] != i ? role[1] : -1;
    note_why(s, i, text.size ? (const char *)text.data : "it follows another one");
    tt_store_value_free(&text);
    return TT_OK;
}

/* Try one replica: the connection stays open if it leads. Another one that it names is *leader. */
static tt_status try_replica(replica_store *s, int i, int64_t accept_ms, int64_t deadline_ms, int *leader) {
    *leader = -1;
    int64_t own_ms = share_of(&s->place, deadline_ms, WHO_MS);
    tt_status status = tt__net_probe(s->place.at[i].host, s->place.at[i].port, sooner(own_ms, accept_ms));
    if (!status)
        status = tt__store_client_open(&s->client, s->place.at[i].host, s->place.at[i].port, TT_STORE_TORCH_2,
                                       &s->access, own_ms);
    if (!status)
        status = ask_who(s, i, leader, own_ms);
    if (status)
        note_why(s, i, tt_last_error());
    s->at = status ? (i + 1) % s->place.n : i;
    if (status || *leader != i)
        tt__store_client_close(&s->client);
    return status;
}

static tt_status fail_no_leader(const replica_store *s) {
    char text[TT__REPLICAS_MAX * (WHY_SIZE + TT__NET_ENDPOINT_SIZE)] = "";
    size_t used = 0;
    for (int i = 0; i < s->place.n; i++) {
        char where[TT__NET_ENDPOINT_SIZE];
        tt__net_endpoint_text(s->place.at[i].host, s->place.at[i].port, where);
        if (*s->why[i])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s: %s", used ? "; " : "", where, s->why[i]);
    }
    return tt__fail(TT_ERR_TIMEOUT, "none of the store's %d replicas served it in time, of which %d must be there: %s",
                    s->place.n, s->place.n / 2 + 1, used ? text : "time was over before one was asked");
}

/* Be connected to the one that leads. */
static tt_status find_leader(replica_store *s, int64_t deadline_ms) {
    int64_t again_ms = LOOK_AGAIN_MS, accept_ms = ACCEPT_MS;
    int next = s->at, leader = -1, refused = 0;
    for (int tries = 1; !tt__store_client_is_open(&s->client); tries++) {
        if (!tt__left_ms(deadline_ms))
            return fail_no_leader(s);
        int i = leader >= 0 ? leader : next;
        tt_status status = try_replica(s, i, accept_ms, deadline_ms, &leader);
        refused = status == TT_ERR_AUTH ? refused + 1 : 0;
        if (refused == s->place.n) /* one alone may be a stranger */
            return status;
        next = (i + 1) % s->place.n;
        if (tries % s->place.n == 0 && !tt__store_client_is_open(&s->client)) {
            sleep_ms(again_ms < tt__left_ms(deadline_ms) ? again_ms : tt__left_ms(deadline_ms));
            again_ms = again_ms * 2 < LOOK_AGAIN_MOST_MS ? again_ms * 2 : LOOK_AGAIN_MOST_MS;
            accept_ms = accept_ms * 2 < ACCEPT_MOST_MS ? accept_ms * 2 : ACCEPT_MOST_MS;
            leader = -1; /* who was named may be the one that is gone */
        }
    }
    return TT_OK;
}

/* ---- requests */

static call rep_begin(tt_store *base, int64_t timeout_ms) {
    replica_store *s = (replica_store *)base;
    call c = {.store = s, .deadline_ms = tt__deadline_ms(timeout_ms)};
    c.status = tt__call_lock_take(&s->lock, c.deadline_ms);
    c.locked = !c.status;
    if (c.locked)
        memset(s->why, 0, sizeof s->why);
    return c;
}

static call rep_request(tt_store *base, tt__store_op op) {
    call c = rep_begin(base, ((replica_store *)base)->timeout_ms);
    tt__store_put_u8(&c.request, (uint8_t)tt__store_op_table[op].opcode[TT_STORE_TORCH_2]);
    return c;
}

static tt_status rep_end(call *c, const char *what, const char *key) {
    tt_status status = c->status;
    if (status && key)
        tt__fail_prefix("store: %s \"%.200s\"", what, key);
    else if (status)
        tt__fail_prefix("store: %s", what);
    tt__bytes_free(&c->request);
    tt_store_value_free(&c->reply);
    if (c->locked)
        tt__call_lock_release(&c->store->lock);
    return status;
}

/* Put the user's key as TCP stores do: with a leading slash. */
static void rep_put_key(call *c, tt__bytes *out, const char *key) {
    size_t size = strlen(key) + 1;
    if (!c->status && size > TT_STORE_MAX_KEY)
        c->status = tt__fail(TT_ERR_INVALID, "a key of %zu bytes; at most %zu are allowed, prefixes included", size - 1,
                             TT_STORE_MAX_KEY - 1);
    tt__store_put_u64(out, size);
    tt__store_put_u8(out, '/');
    tt__bytes_put(out, key, size - 1);
}

static void rep_put_value(call *c, const void *value, size_t size) {
    if (!c->status && size > TT_STORE_MAX_VALUE)
        c->status = tt__fail(TT_ERR_INVALID, "a value of %zu bytes; at most %zu are allowed", size, TT_STORE_MAX_VALUE);
    if (!c->status)
        tt__store_put_string(&c->request, (tt__span){value, size});
}

/* Send the request to the one that leads, once. `answer`: its first byte. */
static tt_status ask_leader(call *c, uint64_t number, uint8_t *answer) {
    replica_store *s = c->store;
    int64_t deadline_ms = share_of(&s->place, c->deadline_ms, PATIENCE_MS); /* what is sent again is done once */
    TT__TRY(tt__store_client_begin(&s->client, TT__STORE_REPLICA_DO));
    tt__store_put_u64(&s->client.out, s->id);
    tt__store_put_u64(&s->client.out, number);
    tt__store_put_string(&s->client.out, (tt__span){c->request.data, c->request.size});
    TT__TRY(tt__store_client_send(&s->client, deadline_ms));
    TT__TRY(tt__store_client_read(&s->client, answer, 1, deadline_ms));
    return tt__store_client_read_string(&s->client, &c->reply, TT_STORE_MAX_VALUE, deadline_ms);
}

/* Have the request carried out, by whichever replica leads: c->reply. */
static void have_done(call *c, bool writes) {
    replica_store *s = c->store;
    if (!c->status && c->request.failed)
        c->status = tt__fail(TT_ERR_MEMORY, "out of memory for a request");
    uint64_t number = c->status || !writes ? 0 : ++s->writes;
    while (!c->status) {
        uint8_t answer = TT__STORE_NOT_LEADING;
        c->status = find_leader(s, c->deadline_ms);
        if (c->status)
            return;
        tt_status asked = ask_leader(c, number, &answer);
        if (!asked && answer == TT__STORE_DONE)
            return;
        if (!asked && answer == TT__STORE_REFUSED) {
            c->status = tt__fail(TT_ERR_PROTOCOL, "the store refuses it: %.*s", (int)c->reply.size,
                                 (const char *)c->reply.data);
            return;
        }
        lose_leader(s, asked ? tt_last_error() : "it led, but does no more");
        tt_store_value_free(&c->reply);
    }
}

/* Read the reply's number, which stands alone. */
static int64_t reply_number(call *c) {
    if (!c->status && c->reply.size != 8)
        c->status = tt__fail(TT_ERR_PROTOCOL, "expected a number as answer, got %zu bytes", c->reply.size);
    return c->status ? 0 : (int64_t)tt__store_number(c->reply.data, 8);
}

/* Take the string that the reply is. */
static void reply_string(call *c, tt_store_value *value) {
    size_t size = c->status || c->reply.size < 8 ? 0 : (size_t)tt__store_number(c->reply.data, 8);
    if (!c->status && c->reply.size != size + 8)
        c->status = tt__fail(TT_ERR_PROTOCOL, "expected a value as answer, got %zu other bytes", c->reply.size);
    if (c->status)
        return;
    *value = (tt_store_value){c->reply.data, size};
    memmove(value->data, (char *)c->reply.data + 8, size + 1);
    c->reply = (tt_store_value){0};
}

/* Wait for the keys; the replica's answer comes when they are there. */
static void await_keys(call *c, const char *const *keys, size_t n) {
    replica_store *s = c->store;
    if (!c->status && n > TT__STORE_MAX_COUNT)
        c->status =
            tt__fail(TT_ERR_INVALID, "%zu keys; at most %" PRIu64 " go into one request", n, TT__STORE_MAX_COUNT);
    while (!c->status) {
        c->status = find_leader(s, c->deadline_ms);
        if (c->status || (c->status = tt__store_client_begin(&s->client, TT__STORE_WAIT)))
            return;
        tt__store_put_u64(&s->client.out, n);
        for (size_t i = 0; i < n; i++)
            rep_put_key(c, &s->client.out, keys[i]);
        if (c->status) {
            tt__bytes_clear(&s->client.out, 0);
            return;
        }
        tt_status waited = tt__store_client_send(&s->client, sooner(c->deadline_ms, PATIENCE_MS));
        if (!waited)
            waited = tt__store_client_read_stop_waiting(&s->client, share_of(&s->place, c->deadline_ms, SLICE_MS));
        if (!waited)
            return;
        if (!tt__store_client_is_open(&s->client))
            lose_leader(s, tt_last_error());
        else if (!tt__left_ms(c->deadline_ms))
            c->status =
                tt__fail(TT_ERR_TIMEOUT, "timed out waiting for %zu keys: %.200s%s", n, keys[0], n > 1 ? ", ..." : "");
    }
}

/* ---- the store's calls */

static tt_status rep_write(call c, const char *what, const char *key, const void *value, size_t size) {
    rep_put_key(&c, &c.request, key);
    rep_put_value(&c, value, size);
    have_done(&c, true);
    return rep_end(&c, what, key);
}

static tt_status rep_set(tt_store *store, const char *key, const void *value, size_t size) {
    return rep_write(rep_request(store, TT__STORE_SET), "set", key, value, size);
}

static tt_status rep_append(tt_store *store, const char *key, const void *value, size_t size) {
    return rep_write(rep_request(store, TT__STORE_APPEND), "append", key, value, size);
}

static tt_status rep_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    call c = rep_request(store, TT__STORE_ADD);
    rep_put_key(&c, &c.request, key);
    tt__store_put_u64(&c.request, (uint64_t)delta);
    have_done(&c, true);
    *result = reply_number(&c);
    return rep_end(&c, "add", key);
}

static tt_status rep_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                 const void *desired, size_t desired_size, tt_store_value *value) {
    call c = rep_request(store, TT__STORE_COMPARE_SET);
    rep_put_key(&c, &c.request, key);
    rep_put_value(&c, expected, expected_size);
    rep_put_value(&c, desired, desired_size);
    have_done(&c, true);
    reply_string(&c, value);
    return rep_end(&c, "compare_set", key);
}

static tt_status rep_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    call c = rep_request(store, TT__STORE_CHECK);
    tt__store_put_u64(&c.request, n);
    for (size_t i = 0; i < n; i++)
        rep_put_key(&c, &c.request, keys[i]);
    have_done(&c, false);
    *all = !c.status && c.reply.size == 1 && *(uint8_t *)c.reply.data == TT__STORE_READY;
    return rep_end(&c, "check", n == 1 ? keys[0] : NULL);
}

static tt_status rep_delete_key(tt_store *store, const char *key, bool *deleted) {
    call c = rep_request(store, TT__STORE_DELETE_KEY);
    rep_put_key(&c, &c.request, key);
    have_done(&c, true);
    *deleted = reply_number(&c) > 0;
    return rep_end(&c, "delete_key", key);
}

static tt_status rep_num_keys(tt_store *store, int64_t *count) {
    call c = rep_request(store, TT__STORE_NUM_KEYS);
    have_done(&c, false);
    *count = reply_number(&c);
    return rep_end(&c, "num_keys", NULL);
}

static tt_status rep_multi_set(tt_store *store, const char *const *keys, const void *const *values, const size_t *sizes,
                               size_t n) {
    call c = rep_request(store, TT__STORE_MULTI_SET);
    tt__store_put_u64(&c.request, n);
    for (size_t i = 0; i < n; i++) {
        rep_put_key(&c, &c.request, keys[i]);
        rep_put_value(&c, values[i], sizes[i]);
    }
    have_done(&c, true);
    return rep_end(&c, "multi_set", NULL);
}

static tt_status rep_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    call c = rep_begin(store, timeout_ms);
    await_keys(&c, keys, n);
    return rep_end(&c, "wait", n == 1 ? keys[0] : NULL);
}

/* Wait for a key, then read it. */
static tt_status rep_get(tt_store *store, const char *key, tt_store_value *value) {
    call c = rep_request(store, TT__STORE_GET);
    await_keys(&c, &key, 1);
    rep_put_key(&c, &c.request, key);
    have_done(&c, false);
    reply_string(&c, value);
    return rep_end(&c, "get", key);
}

static tt_status rep_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    tt_status status = TT_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = rep_get(store, keys[i], &values[i]);
    for (size_t i = 0; i < n && status; i++)
        tt_store_value_free(&values[i]);
    return status;
}

/* Keep the user's keys, without their slash. */
static void read_names(call *c, tt__bytes *text, size_t *n) {
    tt__replica_reader reader = {.rest = {c->reply.data, c->reply.size}};
    for (uint64_t left = c->status ? 0 : tt__replica_take(&reader, 8); left && !reader.bad; left--) {
        tt__span key = tt__replica_take_span(&reader);
        if (key.size < 1 || key.data[0] != '/' || memchr(key.data, 0, key.size))
            continue;
        tt__bytes_put(text, key.data + 1, key.size - 1);
        tt__store_put_u8(text, 0);
        ++*n;
    }
    if (!c->status && reader.bad)
        c->status = tt__fail(TT_ERR_PROTOCOL, "expected keys as answer, got other bytes");
}

static tt_status rep_list_keys(tt_store *store, char ***keys, size_t *n) {
    call c = rep_request(store, TT__STORE_LIST_KEYS);
    tt__bytes text = {0};
    have_done(&c, false);
    read_names(&c, &text, n);
    if (!c.status && (text.failed || !(*keys = tt__store_key_list((const char *)text.data, text.size, *n))))
        c.status = tt__fail(TT_ERR_MEMORY, "out of memory for %zu keys", *n);
    if (c.status)
        *n = 0;
    tt__bytes_free(&text);
    return rep_end(&c, "list_keys", NULL);
}

/* Count arrivals in the key, which stays: the barrier is open once all have come. */
static tt_status rep_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    int64_t deadline_ms = tt__deadline_ms(timeout_ms), arrived = 0;
    TT__TRY(rep_add(store, key, 1, &arrived));
    for (int64_t again_ms = LOOK_AGAIN_MS; arrived < world_size;) {
        tt_store_value value = {0};
        if (!tt__left_ms(deadline_ms))
            return tt__fail(TT_ERR_TIMEOUT,
                            "store: barrier \"%.200s\": timed out after %" PRId64 " ms: %" PRId64 " of %" PRId64
                            " came",
                            key, timeout_ms, arrived, world_size);
        sleep_ms(again_ms < tt__left_ms(deadline_ms) ? again_ms : tt__left_ms(deadline_ms));
        again_ms = again_ms * 2 < LOOK_AGAIN_MOST_MS ? again_ms * 2 : LOOK_AGAIN_MOST_MS;
        TT__TRY(rep_get(store, key, &value));
        arrived = strtoll(value.data, NULL, 10);
        tt_store_value_free(&value);
    }
    return TT_OK;
}

static int rep_port(const tt_store *store) { return ((const replica_store *)store)->place.at[0].port; }

static int64_t rep_timeout_ms(const tt_store *store) { return ((const replica_store *)store)->timeout_ms; }

static void rep_set_timeout_ms(tt_store *store, int64_t timeout_ms) {
    ((replica_store *)store)->timeout_ms = timeout_ms;
}

static void rep_free(tt_store *base) {
    replica_store *s = (replica_store *)base;
    tt__store_client_close(&s->client);
    tt__tls_free(s->access.tls);
    tt__secret_wipe(&s->access.secret);
    tt__call_lock_destroy(&s->lock);
    tt__quarantine(s, sizeof *s, free);
}

static const tt__store_ops replica_ops = {
    .free = rep_free,
    .port = rep_port,
    .timeout_ms = rep_timeout_ms,
    .set_timeout_ms = rep_set_timeout_ms,
    .set = rep_set,
    .get = rep_get,
    .add = rep_add,
    .compare_set = rep_compare_set,
    .wait = rep_wait,
    .check = rep_check,
    .delete_key = rep_delete_key,
    .num_keys = rep_num_keys,
    .append = rep_append,
    .multi_get = rep_multi_get,
    .multi_set = rep_multi_set,
    .list_keys = rep_list_keys,
    .barrier = rep_barrier,
};

tt_status tt__replica_store(tt_store **out, const tt__replica_place *place, const char *secret, int64_t timeout_ms) {
    replica_store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return tt__fail(TT_ERR_MEMORY, "out of memory for a store");
    s->base.ops = &replica_ops;
    s->client.stream.fd = -1;
    s->place = *place;
    s->timeout_ms = timeout_ms ? timeout_ms : DEFAULT_MS;
    tt__call_lock_init(&s->lock);
    tt_status status = tt__random_bytes(&s->id, sizeof s->id);
    if (!status)
        status = tt__secret_choose(&s->access.secret, secret);
    if (!status)
        status = tt__tls_load(&s->access.tls, &s->access.secret);
    if (status) {
        rep_free(&s->base);
        return status;
    }
    *out = &s->base;
    return TT_OK;
}
