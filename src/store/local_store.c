#include "store/local_store.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "base/quarantine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_MS = 300000, KEYS_TEXT_SIZE = 512 };

/* One call in progress. */
typedef struct call {
    tt__local_store *store;
    int64_t deadline_ms;
    bool begun;
    tt_status status; /* of the first failure */
} call;

static tt__span key_span(const char *key) { return (tt__span){(const uint8_t *)key, strlen(key)}; }

static call local_begin_for(tt_store *base, bool write, int64_t timeout_ms) {
    tt__local_store *store = (tt__local_store *)base;
    call c = {.store = store, .deadline_ms = tt__deadline_ms(timeout_ms)};
    c.status = store->medium->begin(store, write, c.deadline_ms);
    c.begun = !c.status;
    return c;
}

static call local_begin(tt_store *base, bool write) {
    return local_begin_for(base, write, ((tt__local_store *)base)->timeout_ms);
}

/* End the call; put the store's name and the call before a failure's text. */
static tt_status local_end(call *c, const char *what, const char *key) {
    if (c->status && key)
        tt__fail_prefix("%s: %s \"%.200s\"", c->store->name, what, key);
    else if (c->status)
        tt__fail_prefix("%s: %s", c->store->name, what);
    if (c->begun)
        c->store->medium->end(c->store);
    return c->status;
}

static void local_no_memory(call *c) { c->status = tt__fail(TT_ERR_MEMORY, "out of memory"); }

/* Find an entry that has a value. */
static tt__store_entry *find_present(const call *c, const char *key) {
    tt__store_entry *entry = tt__store_table_find(&c->store->table, key_span(key));
    return entry && entry->present ? entry : NULL;
}

static void local_check_key(call *c, const char *key) {
    if (!c->status && strlen(key) > TT_STORE_MAX_KEY - 1)
        c->status = tt__fail(TT_ERR_INVALID, "a key of %zu bytes; at most %zu are allowed, prefixes included",
                             strlen(key), TT_STORE_MAX_KEY - 1);
}

static void local_put(call *c, const char *key, tt__span value) {
    local_check_key(c, key);
    if (!c->status && value.size > TT_STORE_MAX_VALUE)
        c->status =
            tt__fail(TT_ERR_INVALID, "a value of %zu bytes; at most %zu are allowed", value.size, TT_STORE_MAX_VALUE);
    if (c->status)
        return;
    tt__store_entry *entry = tt__store_table_obtain(&c->store->table, key_span(key));
    if (!entry) {
        local_no_memory(c);
        return;
    }
    c->status = c->store->medium->publish(c->store, key_span(key), &value);
    if (!c->status && !tt__store_entry_assign(&c->store->table, entry, value))
        local_no_memory(c);
    tt__store_table_settle(&c->store->table, entry);
}

static void copy_value(call *c, tt__span from, tt_store_value *value) {
    char *data = c->status ? NULL : malloc(from.size + 1);
    if (c->status)
        return;
    if (!data) {
        local_no_memory(c);
        return;
    }
    if (from.size)
        memcpy(data, from.data, from.size);
    data[from.size] = '\0';
    *value = (tt_store_value){data, from.size};
}

/* ---- waiting */

static bool all_there(const call *c, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!find_present(c, keys[i]))
            return false;
    return true;
}

static void fail_missing_keys(call *c, const char *const *keys, size_t n, int64_t timeout_ms) {
    char missing[KEYS_TEXT_SIZE] = "";
    size_t used = 0;
    for (size_t i = 0; i < n && used < sizeof missing; i++)
        if (!find_present(c, keys[i]))
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%.100s", used ? ", " : "", keys[i]);
    if (used >= sizeof missing)
        memcpy(missing + sizeof missing - 4, "...", 4);
    c->status = tt__fail(TT_ERR_TIMEOUT, "timed out after %" PRId64 " ms waiting for keys: %s", timeout_ms, missing);
}

/* Read the clock before looking for the keys: a key that has come counts even if the deadline has just passed. */
static void local_wait_for(call *c, const char *const *keys, size_t n, int64_t timeout_ms) {
    for (bool late = false; !c->status; late = !tt__left_ms(c->deadline_ms)) {
        if (all_there(c, keys, n))
            return;
        if (late) {
            fail_missing_keys(c, keys, n, timeout_ms);
            return;
        }
        c->status = c->store->medium->wait(c->store, c->deadline_ms);
        c->begun = !c->status;
    }
}

/* ---- operations */

static tt_status local_set(tt_store *store, const char *key, const void *value, size_t size) {
    call c = local_begin(store, true);
    local_put(&c, key, (tt__span){value, size});
    return local_end(&c, "set", key);
}

static tt_status local_get(tt_store *store, const char *key, tt_store_value *value) {
    call c = local_begin(store, false);
    local_wait_for(&c, &key, 1, c.store->timeout_ms);
    if (!c.status)
        copy_value(&c, tt__store_entry_value(find_present(&c, key)), value);
    return local_end(&c, "get", key);
}

static void local_add_delta(call *c, const char *key, int64_t delta, int64_t *result) {
    char text[24];
    tt__store_entry *entry = c->status ? NULL : find_present(c, key);
    int64_t number = 0;
    if (c->status)
        return;
    if ((entry && !tt__store_entry_number(entry, &number)) || __builtin_add_overflow(number, delta, result)) {
        c->status = tt__fail(TT_ERR_PROTOCOL, "the value is no number, or beyond 64 bits");
        return;
    }
    int size = snprintf(text, sizeof text, "%" PRId64, *result);
    local_put(c, key, (tt__span){(const uint8_t *)text, (size_t)size});
}

static tt_status local_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    call c = local_begin(store, true);
    local_add_delta(&c, key, delta, result);
    return local_end(&c, "add", key);
}

static tt_status local_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                   const void *desired, size_t desired_size, tt_store_value *value) {
    call c = local_begin(store, true);
    tt__store_entry *entry = c.status ? NULL : find_present(&c, key);
    tt__span now = entry ? tt__store_entry_value(entry) : (tt__span){expected, expected_size};
    bool same =
        entry ? now.size == expected_size && (!now.size || !memcmp(now.data, expected, now.size)) : expected_size == 0;
    if (same) {
        now = (tt__span){desired, desired_size};
        local_put(&c, key, now);
    }
    copy_value(&c, now, value);
    return local_end(&c, "compare_set", key);
}

static tt_status local_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    call c = local_begin_for(store, false, timeout_ms);
    local_wait_for(&c, keys, n, timeout_ms);
    return local_end(&c, "wait", NULL);
}

static tt_status local_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    call c = local_begin(store, false);
    *all = !c.status && all_there(&c, keys, n);
    return local_end(&c, "check", n == 1 ? keys[0] : NULL);
}

static tt_status local_delete_key(tt_store *store, const char *key, bool *deleted) {
    call c = local_begin(store, true);
    tt__store_entry *entry = c.status ? NULL : find_present(&c, key);
    *deleted = false;
    if (entry)
        c.status = c.store->medium->publish(c.store, key_span(key), NULL);
    if (entry && !c.status) {
        tt__store_entry_clear(&c.store->table, entry);
        tt__store_table_settle(&c.store->table, entry);
        *deleted = true;
    }
    return local_end(&c, "delete_key", key);
}

static tt_status local_num_keys(tt_store *store, int64_t *count) {
    call c = local_begin(store, false);
    if (!c.status)
        *count = (int64_t)c.store->table.present;
    return local_end(&c, "num_keys", NULL);
}

static tt_status local_append(tt_store *store, const char *key, const void *value, size_t size) {
    call c = local_begin(store, true);
    tt__store_entry *entry = c.status ? NULL : find_present(&c, key);
    tt__bytes whole = {0};
    if (entry)
        tt__bytes_put(&whole, entry->value.data, entry->value.size);
    tt__bytes_put(&whole, value, size);
    if (!c.status && whole.failed)
        local_no_memory(&c);
    local_put(&c, key, (tt__span){whole.data, whole.size});
    tt__bytes_free(&whole);
    return local_end(&c, "append", key);
}

static tt_status local_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    call c = local_begin(store, false);
    local_wait_for(&c, keys, n, c.store->timeout_ms);
    for (size_t i = 0; i < n && !c.status; i++)
        copy_value(&c, tt__store_entry_value(find_present(&c, keys[i])), &values[i]);
    for (size_t i = 0; i < n && c.status; i++)
        tt_store_value_free(&values[i]);
    return local_end(&c, "multi_get", NULL);
}

static tt_status local_multi_set(tt_store *store, const char *const *keys, const void *const *values,
                                 const size_t *sizes, size_t n) {
    call c = local_begin(store, true);
    for (size_t i = 0; i < n; i++)
        local_put(&c, keys[i], (tt__span){values[i], sizes[i]});
    return local_end(&c, "multi_set", NULL);
}

/* Skip keys with a zero byte, which only other programs can make: this interface can't name them. */
static tt_status local_list_keys(tt_store *store, char ***keys, size_t *n) {
    call c = local_begin(store, false);
    const tt__store_table *table = &c.store->table;
    tt__bytes text = {0};
    for (size_t i = 0; !c.status && i < table->bucket_count; i++)
        for (const tt__store_entry *e = table->buckets[i]; e; e = e->next)
            if (e->present && !memchr(e->key, '\0', e->key_size)) {
                tt__bytes_put(&text, e->key, e->key_size);
                tt__bytes_put(&text, "", 1);
                ++*n;
            }
    if (!c.status && (text.failed || !(*keys = tt__store_key_list((const char *)text.data, text.size, *n))))
        local_no_memory(&c);
    if (c.status)
        *n = 0;
    tt__bytes_free(&text);
    return local_end(&c, "list_keys", NULL);
}

/* Count arrivals in the key, which stays: the barrier is open once all have come. */
static tt_status local_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    call c = local_begin_for(store, true, timeout_ms);
    int64_t arrived = 0;
    local_add_delta(&c, key, 1, &arrived);
    for (bool late = false; !c.status && arrived < world_size; late = !tt__left_ms(c.deadline_ms)) {
        if (late) {
            c.status = tt__fail(TT_ERR_TIMEOUT, "timed out after %" PRId64 " ms: %" PRId64 " of %" PRId64 " came",
                                timeout_ms, arrived, world_size);
            break;
        }
        c.status = c.store->medium->wait(c.store, c.deadline_ms);
        c.begun = !c.status;
        tt__store_entry *entry = c.status ? NULL : find_present(&c, key);
        if (entry && !tt__store_entry_number(entry, &arrived))
            c.status = tt__fail(TT_ERR_PROTOCOL, "the value is no number");
    }
    return local_end(&c, "barrier", key);
}

static int local_port(const tt_store *store) {
    (void)store;
    return 0;
}

static int64_t local_timeout_ms(const tt_store *store) { return ((const tt__local_store *)store)->timeout_ms; }

static void local_set_timeout_ms(tt_store *store, int64_t timeout_ms) {
    ((tt__local_store *)store)->timeout_ms = timeout_ms;
}

static void local_free(tt_store *base) {
    tt__local_store *store = (tt__local_store *)base;
    store->medium->free(store);
}

static const tt__store_ops local_ops = {
    .free = local_free,
    .port = local_port,
    .timeout_ms = local_timeout_ms,
    .set_timeout_ms = local_set_timeout_ms,
    .set = local_set,
    .get = local_get,
    .add = local_add,
    .compare_set = local_compare_set,
    .wait = local_wait,
    .check = local_check,
    .delete_key = local_delete_key,
    .num_keys = local_num_keys,
    .append = local_append,
    .multi_get = local_multi_get,
    .multi_set = local_multi_set,
    .list_keys = local_list_keys,
    .barrier = local_barrier,
};

void tt__local_store_init(tt__local_store *store, const tt__medium *medium, int64_t timeout_ms) {
    store->base.ops = &local_ops;
    store->medium = medium;
    store->timeout_ms = timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS;
    tt__store_table_init(&store->table);
}

void tt__local_store_fini(tt__local_store *store) { tt__store_table_free(&store->table); }

/* ---- HashStore: keys for the threads of one process ---- */

typedef struct hash_store {
    tt__local_store base;
    pthread_mutex_t lock; /* held only as long as an operation on the table takes */
    pthread_cond_t changed;
} hash_store;

static tt_status hash_begin(tt__local_store *store, bool write, int64_t deadline_ms) {
    (void)write;
    (void)deadline_ms;
    pthread_mutex_lock(&((hash_store *)store)->lock);
    return TT_OK;
}

static void hash_end(tt__local_store *store) { pthread_mutex_unlock(&((hash_store *)store)->lock); }

static tt_status hash_publish(tt__local_store *store, tt__span key, const tt__span *value) {
    (void)key;
    if (value)
        pthread_cond_broadcast(&((hash_store *)store)->changed);
    return TT_OK;
}

static tt_status hash_wait(tt__local_store *store, int64_t deadline_ms) {
    hash_store *hash = (hash_store *)store;
    const struct timespec until = tt__timespec_ms(deadline_ms);
    pthread_cond_timedwait(&hash->changed, &hash->lock, &until);
    return TT_OK;
}

static void hash_free(tt__local_store *store) {
    hash_store *hash = (hash_store *)store;
    pthread_cond_destroy(&hash->changed);
    pthread_mutex_destroy(&hash->lock);
    tt__local_store_fini(store);
    tt__quarantine(hash, sizeof *hash, free);
}

static const tt__medium hash_medium = {
    .begin = hash_begin, .end = hash_end, .publish = hash_publish, .wait = hash_wait, .free = hash_free};

tt_status tt_hash_store(tt_store **out, int64_t timeout_ms) {
    if (!out)
        return tt__fail(TT_ERR_INVALID, "tt_hash_store: out is NULL");
    *out = NULL;
    if (timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID, "tt_hash_store: expected a timeout_ms of at least 0, got %lld",
                        (long long)timeout_ms);
    hash_store *hash = calloc(1, sizeof *hash);
    if (!hash)
        return tt__fail(TT_ERR_MEMORY, "tt_hash_store: out of memory");
    pthread_mutex_init(&hash->lock, NULL);
    tt__cond_init(&hash->changed);
    tt__local_store_init(&hash->base, &hash_medium, timeout_ms);
    snprintf(hash->base.name, sizeof hash->base.name, "hash store");
    *out = &hash->base.base;
    return TT_OK;
}
