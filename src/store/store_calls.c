/* The public calls: check the arguments, then the store's own operation. */
#include "store/store_ops.h"

#include "base/error.h"
#include "base/quarantine.h"

#include <stdlib.h>
#include <string.h>

static tt_status check_call(const char *call, bool good, const char *what) {
    return good ? TT_OK : tt__fail(TT_ERR_INVALID, "%s: expected %s", call, what);
}

static tt_status check_key(const char *call, const tt_store *store, const char *key) {
    TT__TRY(check_call(call, store != NULL, "a store, got NULL"));
    return check_call(call, key != NULL, "a key, got NULL");
}

static tt_status check_keys(const char *call, const tt_store *store, const char *const *keys, int64_t n) {
    TT__TRY(check_call(call, store != NULL, "a store, got NULL"));
    TT__TRY(check_call(call, n >= 0, "a number of keys of 0 or more"));
    TT__TRY(check_call(call, keys || !n, "keys, got NULL"));
    for (int64_t i = 0; i < n; i++)
        TT__TRY(check_call(call, keys[i] != NULL, "keys, got NULL among them"));
    return TT_OK;
}

/* Choose the timeout: 0 stands for the store's. */
static tt_status check_timeout(const char *call, const tt_store *store, int64_t *timeout_ms) {
    TT__TRY(check_call(call, *timeout_ms >= 0, "a timeout of at least 0 ms"));
    if (*timeout_ms == 0)
        *timeout_ms = store->ops->timeout_ms(store);
    return TT_OK;
}

void tt_store_free(tt_store *store) {
    if (store && !tt__freed_before("tt_store_free", store))
        store->ops->free(store);
}

int tt_store_port(const tt_store *store) { return store ? store->ops->port(store) : 0; }

int64_t tt_store_timeout_ms(const tt_store *store) { return store ? store->ops->timeout_ms(store) : 0; }

void tt_store_set_timeout_ms(tt_store *store, int64_t timeout_ms) {
    if (store && timeout_ms > 0)
        store->ops->set_timeout_ms(store, timeout_ms);
}

void tt_store_value_free(tt_store_value *value) {
    if (!value)
        return;
    free(value->data);
    *value = (tt_store_value){0};
}

tt_status tt_store_set(tt_store *store, const char *key, const void *value, size_t size) {
    TT__TRY(check_key("tt_store_set", store, key));
    TT__TRY(check_call("tt_store_set", value || !size, "a value, got NULL"));
    return store->ops->set(store, key, value, size);
}

tt_status tt_store_get(tt_store *store, const char *key, tt_store_value *value) {
    TT__TRY(check_key("tt_store_get", store, key));
    TT__TRY(check_call("tt_store_get", value != NULL, "where to put the value, got NULL"));
    *value = (tt_store_value){0};
    return store->ops->get(store, key, value);
}

tt_status tt_store_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    TT__TRY(check_key("tt_store_add", store, key));
    int64_t ignored;
    return store->ops->add(store, key, delta, result ? result : &ignored);
}

tt_status tt_store_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                               const void *desired, size_t desired_size, tt_store_value *value) {
    TT__TRY(check_key("tt_store_compare_set", store, key));
    TT__TRY(check_call("tt_store_compare_set", expected || !expected_size, "an expected value, got NULL"));
    TT__TRY(check_call("tt_store_compare_set", desired || !desired_size, "a desired value, got NULL"));
    tt_store_value now = {0};
    TT__TRY(store->ops->compare_set(store, key, expected, expected_size, desired, desired_size, &now));
    if (value)
        *value = now;
    else
        tt_store_value_free(&now);
    return TT_OK;
}

tt_status tt_store_wait(tt_store *store, const char *const *keys, int64_t n, int64_t timeout_ms) {
    TT__TRY(check_keys("tt_store_wait", store, keys, n));
    TT__TRY(check_timeout("tt_store_wait", store, &timeout_ms));
    return n ? store->ops->wait(store, keys, (size_t)n, timeout_ms) : TT_OK;
}

tt_status tt_store_check(tt_store *store, const char *const *keys, int64_t n, bool *all) {
    TT__TRY(check_keys("tt_store_check", store, keys, n));
    TT__TRY(check_call("tt_store_check", all != NULL, "where to put the answer, got NULL"));
    return store->ops->check(store, keys, (size_t)n, all);
}

tt_status tt_store_delete_key(tt_store *store, const char *key, bool *deleted) {
    TT__TRY(check_key("tt_store_delete_key", store, key));
    bool ignored;
    return store->ops->delete_key(store, key, deleted ? deleted : &ignored);
}

tt_status tt_store_num_keys(tt_store *store, int64_t *count) {
    TT__TRY(check_call("tt_store_num_keys", store && count, "a store and where to put the number, got NULL"));
    return store->ops->num_keys(store, count);
}

tt_status tt_store_append(tt_store *store, const char *key, const void *value, size_t size) {
    TT__TRY(check_key("tt_store_append", store, key));
    TT__TRY(check_call("tt_store_append", value || !size, "a value, got NULL"));
    return store->ops->append(store, key, value, size);
}

tt_status tt_store_multi_get(tt_store *store, const char *const *keys, int64_t n, tt_store_value *values) {
    TT__TRY(check_keys("tt_store_multi_get", store, keys, n));
    TT__TRY(check_call("tt_store_multi_get", values || !n, "where to put the values, got NULL"));
    for (int64_t i = 0; i < n; i++)
        values[i] = (tt_store_value){0};
    return n ? store->ops->multi_get(store, keys, (size_t)n, values) : TT_OK;
}

tt_status tt_store_multi_set(tt_store *store, const char *const *keys, const void *const *values, const size_t *sizes,
                             int64_t n) {
    TT__TRY(check_keys("tt_store_multi_set", store, keys, n));
    TT__TRY(check_call("tt_store_multi_set", (values && sizes) || !n, "values and their sizes, got NULL"));
    for (int64_t i = 0; i < n; i++)
        TT__TRY(check_call("tt_store_multi_set", values[i] || !sizes[i], "values, got NULL among them"));
    return n ? store->ops->multi_set(store, keys, values, sizes, (size_t)n) : TT_OK;
}

tt_status tt_store_list_keys(tt_store *store, char ***keys, int64_t *n) {
    size_t count = 0;
    TT__TRY(check_call("tt_store_list_keys", store && keys && n, "a store and where to put the keys, got NULL"));
    *keys = NULL;
    *n = 0;
    TT__TRY(store->ops->list_keys(store, keys, &count));
    *n = (int64_t)count;
    return TT_OK;
}

tt_status tt_store_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    TT__TRY(check_key("tt_store_barrier", store, key));
    TT__TRY(check_call("tt_store_barrier", world_size > 0, "a world size of at least 1"));
    TT__TRY(check_timeout("tt_store_barrier", store, &timeout_ms));
    return store->ops->barrier(store, key, world_size, timeout_ms);
}

char **tt__store_key_list(const char *text, size_t text_size, size_t n) {
    char **keys = malloc((n + 1) * sizeof *keys + text_size);
    if (!keys)
        return NULL;
    char *at = (char *)(keys + n + 1);
    if (text_size)
        memcpy(at, text, text_size);
    for (size_t i = 0; i < n; i++) {
        keys[i] = at;
        at += strlen(at) + 1;
    }
    keys[n] = NULL;
    return keys;
}
