/* A store in etcd: its calls, its making, and leases. */
#include "store/etcd/etcd_store.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "store/etcd/etcd_lease.h"
#include "store/etcd/etcd_text.h"
#include "store/server/key_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_TIMEOUT_MS = 300000,
    SET_AT_ONCE = 100 /* of the 128 operations that a transaction may have; two are the marker's */
};

#define DEFAULT_PREFIX "tutti"

static tt__span value_span(const void *value, size_t size) { return (tt__span){value, size}; }

/* ---- setting */

static void commit_sets(tt__etcd_turn *turn, const tt__bytes *ops) {
    bool done;
    tt__etcd_write write = {.ops = ops, .revision = TT__ETCD_ALWAYS};
    tt__etcd_commit(turn, &write, &done, NULL, NULL);
}

static tt_status etcd_set(tt_store *store, const char *key, const void *value, size_t size) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, 0);
    tt__bytes ops = {0};
    tt__etcd_put_set(&turn, &ops, key, value_span(value, size), 0);
    if (!turn.status)
        commit_sets(&turn, &ops);
    tt__bytes_free(&ops);
    return tt__etcd_end(&turn, "set", key);
}

/* Return the end of those values, from `from` on, that fit into one transaction. */
static size_t sets_end(const size_t *sizes, size_t from, size_t n) {
    size_t bytes = sizes[from], to = from + 1;
    while (to < n && to - from < SET_AT_ONCE && sizes[to] <= TT__ETCD_MAX_VALUE - bytes)
        bytes += sizes[to++];
    return to;
}

/* Check all values before the first is set. */
static tt_status etcd_multi_set(tt_store *store, const char *const *keys, const void *const *values,
                                const size_t *sizes, size_t n) {
    tt__etcd_turn turn = tt__etcd_begin(store, keys, n, 0);
    tt__bytes ops = {0};
    for (size_t i = 0; i < n && !turn.status; i++)
        if (sizes[i] > TT__ETCD_MAX_VALUE)
            tt__etcd_put_set(&turn, &ops, keys[i], value_span(values[i], sizes[i]), 0);
    for (size_t i = 0, end; i < n && !turn.status; i = end) {
        tt__bytes_clear(&ops, SIZE_MAX);
        end = sets_end(sizes, i, n);
        for (size_t k = i; k < end; k++)
            tt__etcd_put_set(&turn, &ops, keys[k], value_span(values[k], sizes[k]), 0);
        commit_sets(&turn, &ops);
    }
    tt__bytes_free(&ops);
    return tt__etcd_end(&turn, "multi_set", NULL);
}

/* ---- changing what is there */

typedef struct adding {
    int64_t delta, result;
} adding;

static bool decide_add(tt__etcd_turn *turn, void *user, const tt__bytes *now, tt__bytes *next) {
    adding *a = user;
    int64_t number = 0;
    char text[24];
    if ((now && !tt__store_value_number((tt__span){now->data, now->size}, &number)) ||
        __builtin_add_overflow(number, a->delta, &a->result)) {
        turn->status = tt__fail(TT_ERR_PROTOCOL, "the value is no number, or beyond 64 bits");
        return false;
    }
    int size = snprintf(text, sizeof text, "%" PRId64, a->result);
    tt__bytes_put(next, text, (size_t)size);
    return true;
}

static tt_status etcd_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, 0);
    adding a = {.delta = delta};
    tt__etcd_modify(&turn, key, 0, decide_add, &a, NULL);
    *result = a.result;
    return tt__etcd_end(&turn, "add", key);
}

static bool decide_append(tt__etcd_turn *turn, void *user, const tt__bytes *now, tt__bytes *next) {
    const tt__span *more = user;
    (void)turn;
    if (now)
        tt__bytes_put(next, now->data, now->size);
    tt__bytes_put(next, more->data, more->size);
    return true;
}

static tt_status etcd_append(tt_store *store, const char *key, const void *value, size_t size) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, 0);
    tt__span more = {value, size};
    tt__etcd_modify(&turn, key, 0, decide_append, &more, NULL);
    return tt__etcd_end(&turn, "append", key);
}

static tt_status etcd_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                  const void *desired, size_t desired_size, tt_store_value *value) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, 0);
    tt__etcd_compare_set_in(&turn, key, value_span(expected, expected_size), value_span(desired, desired_size), 0,
                            value);
    return tt__etcd_end(&turn, "compare_set", key);
}

static tt_status etcd_delete_key(tt_store *store, const char *key, bool *deleted) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, 0);
    tt__bytes ops = {0};
    tt__etcd_write write = {&ops, key, TT__ETCD_IF_THERE};
    *deleted = false;
    if (!turn.status) {
        tt__etcd_put_text(&ops, "{\"request_delete_range\":{");
        tt__etcd_put_key(&ops, turn.store, key);
        tt__etcd_put_text(&ops, "}}");
        tt__etcd_commit(&turn, &write, deleted, NULL, NULL);
    }
    tt__bytes_free(&ops);
    return tt__etcd_end(&turn, "delete_key", key);
}

/* Count arrivals in the key, which stays: the barrier is open once all have come. */
static tt_status etcd_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, timeout_ms);
    adding a = {.delta = 1};
    int64_t revision = 0;
    tt__etcd_modify(&turn, key, 0, decide_add, &a, &revision);
    if (!turn.status)
        tt__etcd_await_number(&turn, key, world_size, revision, &a.result);
    return tt__etcd_end(&turn, "barrier", key);
}

/* ---- reading */

static tt_status etcd_get(tt_store *store, const char *key, tt_store_value *value) {
    tt__etcd_turn turn = tt__etcd_begin(store, &key, 1, 0);
    tt__etcd_await(&turn, &key, 1, value);
    return tt__etcd_end(&turn, "get", key);
}

static tt_status etcd_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    tt__etcd_turn turn = tt__etcd_begin(store, keys, n, 0);
    tt__etcd_await(&turn, keys, n, values);
    return tt__etcd_end(&turn, "multi_get", NULL);
}

static tt_status etcd_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    tt__etcd_turn turn = tt__etcd_begin(store, keys, n, timeout_ms);
    tt__etcd_await(&turn, keys, n, NULL);
    return tt__etcd_end(&turn, "wait", NULL);
}

static void check_found(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv) {
    (void)turn;
    (void)i;
    *(bool *)user = *(bool *)user && kv->there;
}

static tt_status etcd_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    tt__etcd_turn turn = tt__etcd_begin(store, keys, n, 0);
    int64_t revision;
    *all = true;
    tt__etcd_look(&turn, keys, n, false, &revision, check_found, all);
    return tt__etcd_end(&turn, "check", n == 1 ? keys[0] : NULL);
}

static tt_status etcd_num_keys(tt_store *store, int64_t *count) {
    tt__etcd_turn turn = tt__etcd_begin(store, NULL, 0, 0);
    tt__etcd_count(&turn, count);
    return tt__etcd_end(&turn, "num_keys", NULL);
}

typedef struct listing {
    tt__bytes text, key;
    size_t n;
} listing;

static void list_found_key(tt__etcd_turn *turn, void *user, const tt__etcd_kv *kv) {
    listing *l = user;
    if (!tt__etcd_key_of(turn->store, kv, &l->key))
        return; /* a name with a zero byte is a marker */
    tt__bytes_put(&l->text, l->key.data, l->key.size);
    l->n++;
}

static tt_status etcd_list_keys(tt_store *store, char ***keys, size_t *n) {
    tt__etcd_turn turn = tt__etcd_begin(store, NULL, 0, 0);
    listing l = {.n = 0};
    tt__etcd_scan(&turn, list_found_key, &l);
    if (!turn.status &&
        (l.text.failed || l.key.failed || !(*keys = tt__store_key_list((const char *)l.text.data, l.text.size, l.n))))
        tt__etcd_no_memory(&turn);
    *n = turn.status ? 0 : l.n;
    tt__bytes_free(&l.text);
    tt__bytes_free(&l.key);
    return tt__etcd_end(&turn, "list_keys", NULL);
}

/* ---- the store */

static int etcd_port(const tt_store *store) {
    (void)store;
    return 0;
}

static int64_t etcd_timeout_ms(const tt_store *store) { return ((const tt__etcd_store *)store)->timeout_ms; }

static void etcd_set_timeout_ms(tt_store *store, int64_t timeout_ms) {
    ((tt__etcd_store *)store)->timeout_ms = timeout_ms;
}

static void etcd_free(tt_store *base) {
    tt__etcd_store *store = (tt__etcd_store *)base;
    tt__etcd_drop_marker(store);
    tt__etcd_client_end(&store->client);
    tt__call_lock_destroy(&store->lock);
    free(store->prefix);
    tt__quarantine(store, sizeof *store, free);
}

static const tt__store_ops etcd_ops = {
    .free = etcd_free,
    .port = etcd_port,
    .timeout_ms = etcd_timeout_ms,
    .set_timeout_ms = etcd_set_timeout_ms,
    .set = etcd_set,
    .get = etcd_get,
    .add = etcd_add,
    .compare_set = etcd_compare_set,
    .wait = etcd_wait,
    .check = etcd_check,
    .delete_key = etcd_delete_key,
    .num_keys = etcd_num_keys,
    .append = etcd_append,
    .multi_get = etcd_multi_get,
    .multi_set = etcd_multi_set,
    .list_keys = etcd_list_keys,
    .barrier = etcd_barrier,
};

tt_status tt__etcd_clear(tt_store *store) {
    tt__etcd_turn turn = tt__etcd_begin(store, NULL, 0, 0);
    tt__bytes ops = {0};
    tt__etcd_put_text(&ops, "{\"request_delete_range\":{");
    tt__etcd_put_key(&ops, turn.store, "\1"); /* the first key after the markers */
    tt__etcd_put_end(&ops, turn.store);
    tt__etcd_put_text(&ops, "}},{\"request_delete_range\":{");
    tt__etcd_put_key(&ops, turn.store, "");
    tt__etcd_put_text(&ops, "}}");
    if (!turn.status)
        commit_sets(&turn, &ops);
    tt__bytes_free(&ops);
    return tt__etcd_end(&turn, "removing all keys", NULL);
}

static tt_status set_prefix(tt__etcd_store *store, const char *given) {
    const char *prefix = given ? given : DEFAULT_PREFIX;
    size_t size = strlen(prefix);
    while (size && prefix[size - 1] == '/')
        size--;
    if (!size)
        return tt__fail(TT_ERR_INVALID, "tt_etcd_store: expected a .prefix for the keys, got none");
    if (size > TT_STORE_MAX_KEY / 8)
        return tt__fail(TT_ERR_INVALID, "tt_etcd_store: a .prefix of %zu bytes; at most %zu are allowed", size,
                        TT_STORE_MAX_KEY / 8);
    store->prefix = malloc(size + 2);
    if (!store->prefix)
        return tt__fail(TT_ERR_MEMORY, "tt_etcd_store: out of memory");
    memcpy(store->prefix, prefix, size);
    memcpy(store->prefix + size, "/", 2);
    store->prefix_size = size + 1;
    return TT_OK;
}

/* Check that etcd answers, has the v3 API, and lets this user use the prefix. */
static tt_status try_store(tt__etcd_store *store) {
    tt__etcd_turn turn = tt__etcd_begin(&store->base, NULL, 0, 0);
    int64_t count;
    tt__etcd_count(&turn, &count);
    return tt__etcd_end(&turn, "connecting", NULL);
}

tt_status tt_etcd_store_with(const tt_etcd_store_args *given, size_t size) {
    tt_etcd_store_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out)
        return tt__fail(TT_ERR_INVALID, "tt_etcd_store: out is NULL");
    *args.out = NULL;
    if (!args.endpoints || !*args.endpoints)
        return tt__fail(TT_ERR_INVALID, "tt_etcd_store: expected the address of etcd, got none");
    if (args.timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID, "tt_etcd_store: expected a timeout_ms of at least 0, got %" PRId64,
                        args.timeout_ms);
    tt__etcd_store *store = calloc(1, sizeof *store);
    if (!store)
        return tt__fail(TT_ERR_MEMORY, "tt_etcd_store: out of memory");
    store->base.ops = &etcd_ops;
    store->timeout_ms = args.timeout_ms ? args.timeout_ms : DEFAULT_TIMEOUT_MS;
    tt__call_lock_init(&store->lock);
    tt_status status = set_prefix(store, args.prefix);
    if (!status &&
        (status = tt__etcd_client_begin(&store->client, args.endpoints,
                                        &(tt__etcd_credentials){args.user, args.password, args.token, args.ca_file,
                                                                args.cert_file, args.key_file})))
        tt__fail_prefix("tt_etcd_store");
    if (!status)
        status = try_store(store);
    if (status)
        etcd_free(&store->base);
    else
        *args.out = &store->base;
    return status;
}

/* ---- leases ---- */

struct tt__etcd_lease {
    tt_store *store;
    int64_t id, ttl_ms;
};

static tt_status lease_check_store(const tt_store *store) {
    return store && store->ops == &etcd_ops ? TT_OK : tt__fail(TT_ERR_INVALID, "leases: expected a store in etcd");
}

tt_status tt__etcd_lease_new(tt__etcd_lease **out, tt_store *store, int64_t ttl_ms, int64_t timeout_ms) {
    *out = NULL;
    TT__TRY(lease_check_store(store));
    if (ttl_ms <= 0)
        return tt__fail(TT_ERR_INVALID, "leases: expected a time above 0 ms, got %" PRId64, ttl_ms);
    tt__etcd_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return tt__fail(TT_ERR_MEMORY, "out of memory");
    lease->store = store;
    tt__etcd_turn turn = tt__etcd_begin(store, NULL, 0, timeout_ms);
    int64_t seconds = 0;
    if (!turn.status)
        turn.status =
            tt__etcd_grant(&turn.store->client, (ttl_ms - 1) / 1000 + 1, turn.deadline_ms, &lease->id, &seconds);
    lease->ttl_ms = seconds * 1000;
    tt_status status = tt__etcd_end(&turn, "making a lease", NULL);
    if (status)
        free(lease);
    else
        *out = lease;
    return status;
}

int64_t tt__etcd_lease_ttl_ms(const tt__etcd_lease *lease) { return lease->ttl_ms; }

tt_status tt__etcd_lease_beat(tt__etcd_lease *lease, int64_t timeout_ms) {
    tt__etcd_turn turn = tt__etcd_begin(lease->store, NULL, 0, timeout_ms);
    if (!turn.status)
        turn.status = tt__etcd_renew_lease(&turn.store->client, lease->id, turn.deadline_ms);
    return tt__etcd_end(&turn, "keeping a lease", NULL);
}

void tt__etcd_lease_end(tt__etcd_lease *lease, int64_t timeout_ms) {
    tt__saved_error saved;
    if (!lease)
        return;
    tt__error_save(&saved);
    tt__etcd_turn turn = tt__etcd_begin(lease->store, NULL, 0, timeout_ms);
    if (!turn.status)
        turn.status = tt__etcd_revoke(&turn.store->client, lease->id, turn.deadline_ms);
    tt_ignore(tt__etcd_end(&turn, "ending a lease", NULL));
    tt__error_restore(&saved);
    tt__etcd_lease_free(lease);
}

void tt__etcd_lease_free(tt__etcd_lease *lease) { free(lease); }

/* If etcd says that there is no such lease, it means the caller's: the marker's has just been made anew. */
static tt_status name_ended_lease(tt__etcd_turn *turn) {
    if (turn->status == TT_ERR_NET && turn->store->client.code == TT__ETCD_NOT_FOUND)
        turn->status = tt__fail(TT_ERR_STATE, "the lease has ended, and its keys are gone: it was not kept alive in "
                                              "time");
    return turn->status;
}

tt_status tt__etcd_compare_set_leased(tt__etcd_lease *lease, const char *key, const void *expected,
                                      size_t expected_size, const void *desired, size_t desired_size,
                                      int64_t timeout_ms, tt_store_value *value) {
    tt__etcd_turn turn = tt__etcd_begin(lease->store, &key, 1, timeout_ms);
    tt__etcd_compare_set_in(&turn, key, (tt__span){expected, expected_size}, (tt__span){desired, desired_size},
                            lease->id, value);
    name_ended_lease(&turn);
    return tt__etcd_end(&turn, "compare_set", key);
}
