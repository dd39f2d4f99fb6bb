/* TCPStore: every operation is a request and its reply on one connection, which the threads of a process use one after
 * the other. */
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/quarantine.h"
#include "net/net.h"
#include "store/client/client.h"
#include "store/store_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_MS = 300000, KEYS_TEXT_SIZE = 512, KEYS_NAMED = 16, NAMING_MS = 1000, ANSWER_MS = 5000 };

typedef struct tcp_store {
    tt_store base;
    tt__call_lock lock; /* guards the client */
    tt__store_client client;
    _Atomic int64_t timeout_ms;
    int port;
    char where[TT__NET_ENDPOINT_SIZE]; /* host:port, for errors */
    /* tt__store_life(), tt__store_lasting_life() */
    char life[2 * TT__JOB_SIZE + 1], lasting_life[TT__JOB_SIZE + 1];
    tt__store_access access;
    tt_store_server *server; /* ours, or NULL */
} tcp_store;

/* One call in progress. */
typedef struct call {
    tcp_store *store;
    tt__store_client *client; /* used only while status is TT_OK, because then the lock is held */
    int64_t deadline_ms;
    bool locked;
    tt_status status; /* of the first failure */
} call;

static call tcp_begin_for(tt_store *base, tt__store_op op, int64_t timeout_ms) {
    tcp_store *store = (tcp_store *)base;
    call c = {store, &store->client, tt__deadline_ms(timeout_ms), .status = TT_OK};
    c.status = tt__call_lock_take(&store->lock, c.deadline_ms);
    c.locked = !c.status;
    if (c.locked)
        c.status = tt__store_client_begin(c.client, op);
    return c;
}

static call tcp_begin(tt_store *base, tt__store_op op) {
    return tcp_begin_for(base, op, ((tcp_store *)base)->timeout_ms);
}

static void put_u64(call *c, uint64_t value) {
    if (!c->status)
        tt__store_put_u64(&c->client->out, value);
}

/* Append the user's key as it is sent, with a leading slash. */
static void put_key(call *c, const char *key) {
    size_t size = strlen(key) + 1;
    if (c->status)
        return;
    if (size > TT_STORE_MAX_KEY) {
        c->status = tt__fail(TT_ERR_INVALID, "a key of %zu bytes; at most %zu are allowed, prefixes included", size - 1,
                             TT_STORE_MAX_KEY - 1);
        return;
    }
    tt__store_put_u64(&c->client->out, size);
    tt__store_put_u8(&c->client->out, '/');
    tt__bytes_put(&c->client->out, key, size - 1);
}

static void put_keys(call *c, const char *const *keys, size_t n) {
    if (!c->status && n > TT__STORE_MAX_COUNT)
        c->status =
            tt__fail(TT_ERR_INVALID, "%zu keys; at most %" PRIu64 " go into one request", n, TT__STORE_MAX_COUNT);
    if (c->status)
        return;
    tt__store_put_u64(&c->client->out, n);
    for (size_t i = 0; i < n; i++)
        put_key(c, keys[i]);
}

static void put_value(call *c, const void *value, size_t size) {
    if (c->status)
        return;
    if (size > TT_STORE_MAX_VALUE)
        c->status = tt__fail(TT_ERR_INVALID, "a value of %zu bytes; at most %zu are allowed", size, TT_STORE_MAX_VALUE);
    else
        tt__store_put_string(&c->client->out, (tt__span){value, size});
}

static void submit_call(call *c) {
    if (!c->status)
        c->status = tt__store_client_send(c->client, c->deadline_ms);
}

static void read_i64(call *c, int64_t *value) {
    if (!c->status)
        c->status = tt__store_client_read_i64(c->client, value, c->deadline_ms);
}

static void read_value(call *c, tt_store_value *value) {
    if (!c->status)
        c->status = tt__store_client_read_string(c->client, value, TT_STORE_MAX_VALUE, c->deadline_ms);
}

static void read_flag(call *c, uint8_t *flag) {
    if (!c->status)
        c->status = tt__store_client_read(c->client, flag, 1, c->deadline_ms);
}

/* Release the lock; put the server's address and the call before a failure's text. */
static tt_status tcp_end(call *c, const char *what, const char *key) {
    tt_status status = c->status;
    if (status && key)
        tt__fail_prefix("store %s: %s \"%.200s\"", c->store->where, what, key);
    else if (status)
        tt__fail_prefix("store %s: %s", c->store->where, what);
    if (c->locked)
        tt__call_lock_release(&c->store->lock);
    return status;
}

static tt_status tcp_write(call c, const char *what, const char *key, const void *value, size_t size) {
    put_key(&c, key);
    put_value(&c, value, size);
    submit_call(&c);
    return tcp_end(&c, what, key);
}

static tt_status tcp_set(tt_store *store, const char *key, const void *value, size_t size) {
    return tcp_write(tcp_begin(store, TT__STORE_SET), "set", key, value, size);
}

static tt_status tcp_append(tt_store *store, const char *key, const void *value, size_t size) {
    return tcp_write(tcp_begin(store, TT__STORE_APPEND), "append", key, value, size);
}

static tt_status tcp_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    call c = tcp_begin(store, TT__STORE_ADD);
    put_key(&c, key);
    put_u64(&c, (uint64_t)delta);
    submit_call(&c);
    read_i64(&c, result);
    if (c.locked && c.status == TT_ERR_NET && c.client->ended)
        c.status =
            tt__fail(TT_ERR_PROTOCOL, "the server closed the connection: the value is no number (or the server ended)");
    return tcp_end(&c, "add", key);
}

static tt_status tcp_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                 const void *desired, size_t desired_size, tt_store_value *value) {
    call c = tcp_begin(store, TT__STORE_COMPARE_SET);
    put_key(&c, key);
    put_value(&c, expected, expected_size);
    put_value(&c, desired, desired_size);
    submit_call(&c);
    read_value(&c, value);
    return tcp_end(&c, "compare_set", key);
}

static tt_status tcp_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    call c = tcp_begin(store, TT__STORE_CHECK);
    uint8_t flag = TT__STORE_NOT_READY;
    put_keys(&c, keys, n);
    submit_call(&c);
    read_flag(&c, &flag);
    *all = flag == TT__STORE_READY;
    return tcp_end(&c, "check", n == 1 ? keys[0] : NULL);
}

static tt_status tcp_delete_key(tt_store *store, const char *key, bool *deleted) {
    call c = tcp_begin(store, TT__STORE_DELETE_KEY);
    int64_t count = 0;
    put_key(&c, key);
    submit_call(&c);
    read_i64(&c, &count);
    *deleted = count > 0;
    return tcp_end(&c, "delete_key", key);
}

static tt_status tcp_num_keys(tt_store *store, int64_t *count) {
    call c = tcp_begin(store, TT__STORE_NUM_KEYS);
    submit_call(&c);
    read_i64(&c, count);
    return tcp_end(&c, "num_keys", NULL);
}

static tt_status tcp_multi_set(tt_store *store, const char *const *keys, const void *const *values, const size_t *sizes,
                               size_t n) {
    call c = tcp_begin(store, TT__STORE_MULTI_SET);
    if (!c.status && n > TT__STORE_MAX_COUNT)
        c.status =
            tt__fail(TT_ERR_INVALID, "%zu keys; at most %" PRIu64 " go into one request", n, TT__STORE_MAX_COUNT);
    put_u64(&c, n);
    for (size_t i = 0; i < n && !c.status; i++) {
        put_key(&c, keys[i]);
        put_value(&c, values[i], sizes[i]);
    }
    submit_call(&c);
    return tcp_end(&c, "multi_set", NULL);
}

/* Is this key missing? Only for the text of a timeout, so after any error the answer is no. */
static bool is_missing(const call *c, const char *key, int64_t deadline_ms) {
    uint8_t flag = TT__STORE_READY;
    call check = {c->store, c->client, deadline_ms, .status = tt__store_client_begin(c->client, TT__STORE_CHECK)};
    put_keys(&check, &key, 1);
    submit_call(&check);
    read_flag(&check, &flag);
    return flag == TT__STORE_NOT_READY;
}

/* Name the missing keys as "a, b, c", or all keys if the server can't be asked any more. The server gets extra time to
 * answer: an unread answer would cost the connection and, on a busy machine, the job. */
static void name_missing(call *c, const char *const *keys, size_t n, char text[KEYS_TEXT_SIZE]) {
    int64_t deadline_ms = tt__deadline_ms(NAMING_MS);
    size_t named = 0, used = 0, i = 0;
    text[0] = '\0';
    for (; i < n && named < KEYS_NAMED && tt__left_ms(deadline_ms); i++) {
        if (tt__store_client_is_open(c->client) && n > 1 && !is_missing(c, keys[i], tt__deadline_ms(ANSWER_MS)))
            continue;
        int wrote = snprintf(text + used, KEYS_TEXT_SIZE - used, "%s%.100s", named++ ? ", " : "", keys[i]);
        if ((size_t)wrote >= KEYS_TEXT_SIZE - used)
            break;
        used += (size_t)wrote;
    }
    if (i < n && used + 5 < KEYS_TEXT_SIZE)
        snprintf(text + used, KEYS_TEXT_SIZE - used, ", ...");
}

static void tcp_wait_for(call *c, const char *const *keys, size_t n, int64_t timeout_ms) {
    put_keys(c, keys, n);
    submit_call(c);
    if (!c->status)
        c->status = tt__store_client_read_stop_waiting(c->client, c->deadline_ms);
    if (!c->locked || c->status != TT_ERR_TIMEOUT)
        return;
    char missing[KEYS_TEXT_SIZE];
    tt__net_interrupt_suspend(); /* an unread answer would cost the connection */
    name_missing(c, keys, n, missing);
    tt__net_interrupt_resume();
    c->status = tt__fail(TT_ERR_TIMEOUT, "timed out after %" PRId64 " ms waiting for keys: %s", timeout_ms, missing);
}

static tt_status tcp_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    call c = tcp_begin_for(store, TT__STORE_WAIT, timeout_ms);
    tcp_wait_for(&c, keys, n, timeout_ms);
    return tcp_end(&c, "wait", NULL);
}

/* Start the next request of the same call, after a wait. */
static void tcp_next_request(call *c, tt__store_op op) {
    if (!c->status)
        c->status = tt__store_client_begin(c->client, op);
}

static tt_status tcp_get(tt_store *store, const char *key, tt_store_value *value) {
    call c = tcp_begin(store, TT__STORE_WAIT);
    tcp_wait_for(&c, &key, 1, c.store->timeout_ms);
    tcp_next_request(&c, TT__STORE_GET);
    put_key(&c, key);
    submit_call(&c);
    read_value(&c, value);
    return tcp_end(&c, "get", key);
}

static tt_status tcp_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    call c = tcp_begin(store, TT__STORE_MULTI_GET); /* refuses at once where the dialect lacks it */
    tcp_next_request(&c, TT__STORE_WAIT);
    tcp_wait_for(&c, keys, n, c.store->timeout_ms);
    tcp_next_request(&c, TT__STORE_MULTI_GET);
    put_keys(&c, keys, n);
    submit_call(&c);
    for (size_t i = 0; i < n; i++)
        read_value(&c, &values[i]);
    for (size_t i = 0; i < n && c.status; i++)
        tt_store_value_free(&values[i]);
    return tcp_end(&c, "multi_get", NULL);
}

/* Keep the user's keys, without their slash. A key with a NUL byte can't be named through this interface and is left
 * out. */
static void read_keys(call *c, tt__bytes *text, size_t *n) {
    int64_t count = 0;
    read_i64(c, &count);
    for (int64_t i = 0; i < count && !c->status; i++) {
        tt_store_value key = {0};
        if ((c->status = tt__store_client_read_string(c->client, &key, TT_STORE_MAX_KEY, c->deadline_ms)))
            break;
        const char *name = key.data;
        if (name[0] == '/' && strlen(name) == key.size) {
            tt__bytes_put(text, name + 1, key.size);
            ++*n;
        }
        tt_store_value_free(&key);
    }
}

static tt_status tcp_list_keys(tt_store *store, char ***keys, size_t *n) {
    call c = tcp_begin(store, TT__STORE_LIST_KEYS);
    tt__bytes text = {0};
    submit_call(&c);
    read_keys(&c, &text, n);
    if (!c.status && (text.failed || !(*keys = tt__store_key_list((const char *)text.data, text.size, *n))))
        c.status = tt__fail(TT_ERR_MEMORY, "out of memory for %zu keys", *n);
    if (c.status)
        *n = 0;
    tt__bytes_free(&text);
    return tcp_end(&c, "list_keys", NULL);
}

static tt_status tcp_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    call c = tcp_begin_for(store, TT__STORE_BARRIER, timeout_ms);
    put_key(&c, key);
    put_u64(&c, (uint64_t)world_size);
    submit_call(&c);
    if (!c.status)
        c.status = tt__store_client_read_stop_waiting(c.client, c.deadline_ms);
    if (c.locked && c.status == TT_ERR_TIMEOUT)
        c.status = tt__fail(TT_ERR_TIMEOUT, "timed out after %" PRId64 " ms before all %" PRId64 " clients came",
                            timeout_ms, world_size);
    return tcp_end(&c, "barrier", key);
}

static int tcp_port(const tt_store *store) { return ((const tcp_store *)store)->port; }

static int64_t tcp_timeout_ms(const tt_store *store) { return ((const tcp_store *)store)->timeout_ms; }

static void tcp_set_timeout_ms(tt_store *store, int64_t timeout_ms) { ((tcp_store *)store)->timeout_ms = timeout_ms; }

static const char *tcp_life(const tt_store *store) { return ((const tcp_store *)store)->life; }

static const char *tcp_lasting_life(const tt_store *store) { return ((const tcp_store *)store)->lasting_life; }

static void tcp_free(tt_store *base) {
    tcp_store *store = (tcp_store *)base;
    tt__store_client_close(&store->client);
    tt_store_server_free(store->server);
    tt__tls_free(store->access.tls);
    tt__secret_wipe(&store->access.secret);
    tt__call_lock_destroy(&store->lock);
    tt__quarantine(store, sizeof *store, free);
}

static const tt__store_ops tcp_ops = {
    .free = tcp_free,
    .port = tcp_port,
    .timeout_ms = tcp_timeout_ms,
    .set_timeout_ms = tcp_set_timeout_ms,
    .set = tcp_set,
    .get = tcp_get,
    .add = tcp_add,
    .compare_set = tcp_compare_set,
    .wait = tcp_wait,
    .check = tcp_check,
    .delete_key = tcp_delete_key,
    .num_keys = tcp_num_keys,
    .append = tcp_append,
    .multi_get = tcp_multi_get,
    .multi_set = tcp_multi_set,
    .list_keys = tcp_list_keys,
    .barrier = tcp_barrier,
    .life = tcp_life,
    .lasting_life = tcp_lasting_life,
};

/* Add `delta` to the counter of clients. */
static tt_status count_client(tcp_store *store, int64_t delta, int64_t deadline_ms, int64_t *came) {
    call c = {store, &store->client, deadline_ms, .status = tt__store_client_begin(&store->client, TT__STORE_ADD)};
    tt__store_put_string(&c.client->out,
                         (tt__span){(const uint8_t *)TT__STORE_INIT_KEY, sizeof TT__STORE_INIT_KEY - 1});
    put_u64(&c, (uint64_t)delta);
    submit_call(&c);
    read_i64(&c, came);
    return c.status;
}

/* On the serving side, wait for the other clients: one that comes late must not find the server gone. */
static tt_status wait_for_workers(tcp_store *store, const tt_tcp_store_args *args, int64_t deadline_ms) {
    int64_t came = 0;
    TT__TRY(count_client(store, 1, deadline_ms, &came));
    if (!store->server || args->no_wait_for_workers)
        return TT_OK;
    for (long pause_us = 100; came < args->world_size; pause_us = pause_us < 8000 ? 2 * pause_us : 10000) {
        tt__sleep_us(pause_us);
        tt_status status = tt__left_ms(deadline_ms) ? count_client(store, 0, deadline_ms, &came) : TT_ERR_TIMEOUT;
        /* If the deadline passes while the count is asked for, the reason is the same: clients are missing. */
        if (status == TT_ERR_TIMEOUT)
            return tt__fail(status, "timed out after %" PRId64 " ms waiting for clients: %" PRId64 " of %d joined",
                            tcp_timeout_ms(&store->base), came, args->world_size);
        TT__TRY(status);
    }
    return TT_OK;
}

/* Write the server's life as text; "" if it has none. */
static void note_life(tcp_store *store) {
    static const uint8_t none[TT__JOB_SIZE];
    const uint8_t *life = store->client.life;
    if (!memcmp(life, none, sizeof none))
        return;
    for (size_t i = 0; i < TT__JOB_SIZE; i++)
        snprintf(store->life + 2 * i, 3, "%02x", life[i]);
    memcpy(store->lasting_life, store->life, TT__JOB_SIZE);
}

static tt_status open_tcp_store(tcp_store *store, const tt_tcp_store_args *args) {
    int64_t deadline_ms = tt__deadline_ms(store->timeout_ms);
    store->port = args->port;
    if (args->is_server) {
        TT__TRY(
            tt_store_server_new(&store->server, args->host, args->port, .auth = args->auth, .secret = args->secret));
        store->port = tt_store_server_port(store->server);
    }
    if (!args->torch_server) {
        TT__TRY(tt__secret_choose(&store->access.secret, args->secret));
        TT__TRY(tt__tls_load(&store->access.tls, &store->access.secret));
    }
    tt__net_endpoint_text(args->host, store->port, store->where);
    TT__TRY(tt__store_client_open(&store->client, args->host, store->port, args->dialect, &store->access, deadline_ms));
    if (store->access.secret.set)
        note_life(store);
    if (args->world_size > 0 && wait_for_workers(store, args, deadline_ms))
        return tt__fail_prefix("store %s", store->where);
    return TT_OK;
}

static tt_status check_tcp_args(const tt_tcp_store_args *args) {
    if (!args->host || !*args->host)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: expected a host, got none");
    if (args->port < !args->is_server || args->port > 65535)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: expected a port from %d to 65535, got %d", !args->is_server,
                        args->port);
    if (args->is_server && args->torch_server)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: is_server and torch_server: the server is ours, not PyTorch's");
    if (args->world_size < 0)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: expected a world_size of at least 0, got %d", args->world_size);
    if (args->timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: expected a timeout_ms of at least 0, got %" PRId64,
                        args->timeout_ms);
    if (args->dialect != TT_STORE_TORCH_2 && args->dialect != TT_STORE_TORCH_1_13 &&
        args->dialect != TT_STORE_TORCH_ANY)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: expected one of tt_store_dialect, got %d", (int)args->dialect);
    return TT_OK;
}

tt_status tt_tcp_store_with(const tt_tcp_store_args *given, size_t size) {
    tt_tcp_store_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out)
        return tt__fail(TT_ERR_INVALID, "tt_tcp_store: out is NULL");
    *args.out = NULL;
    TT__TRY(check_tcp_args(&args));
    tcp_store *store = calloc(1, sizeof *store);
    if (!store)
        return tt__fail(TT_ERR_MEMORY, "tt_tcp_store: out of memory");
    store->base.ops = &tcp_ops;
    store->client.stream.fd = -1;
    store->timeout_ms = args.timeout_ms ? args.timeout_ms : DEFAULT_TIMEOUT_MS;
    tt__call_lock_init(&store->lock);
    tt_status status = open_tcp_store(store, &args);
    if (status) {
        tcp_free(&store->base);
        return status;
    }
    *args.out = &store->base;
    return TT_OK;
}
