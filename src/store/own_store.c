#include "store/own_store.h"

#include "base/error.h"
#include "base/quarantine.h"
#include "store/store_ops.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct own_store {
    tt_store base;
    tt__store_class cls;
    void *user;
    _Atomic int64_t timeout_ms;
} own_store;

static const own_store *own_of(const tt_store *store) { return (const own_store *)store; }

static tt_status own_lacks(const own_store *s, const char *call) {
    return tt__fail(TT_ERR_UNSUPPORTED, "%s: %s has no such call", call, s->cls.name);
}

/* ---- the calls of the class */

static tt_status own_set(tt_store *store, const char *key, const void *value, size_t size) {
    const own_store *s = own_of(store);
    return s->cls.set(s->user, key, value, size);
}

static tt_status own_get(tt_store *store, const char *key, tt_store_value *value) {
    const own_store *s = own_of(store);
    return s->cls.get(s->user, key, s->timeout_ms, value);
}

static tt_status own_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    const own_store *s = own_of(store);
    return s->cls.add(s->user, key, delta, result);
}

static tt_status own_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    const own_store *s = own_of(store);
    return s->cls.wait(s->user, keys, (int64_t)n, timeout_ms);
}

static tt_status own_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    const own_store *s = own_of(store);
    return s->cls.check(s->user, keys, (int64_t)n, all);
}

static tt_status own_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                 const void *desired, size_t desired_size, tt_store_value *value) {
    const own_store *s = own_of(store);
    if (!s->cls.compare_set)
        return own_lacks(s, "tt_store_compare_set");
    return s->cls.compare_set(s->user, key, expected, expected_size, desired, desired_size, value);
}

static tt_status own_delete_key(tt_store *store, const char *key, bool *deleted) {
    const own_store *s = own_of(store);
    return s->cls.delete_key ? s->cls.delete_key(s->user, key, deleted) : own_lacks(s, "tt_store_delete_key");
}

static tt_status own_num_keys(tt_store *store, int64_t *count) {
    const own_store *s = own_of(store);
    return s->cls.num_keys ? s->cls.num_keys(s->user, count) : own_lacks(s, "tt_store_num_keys");
}

static tt_status own_append(tt_store *store, const char *key, const void *value, size_t size) {
    const own_store *s = own_of(store);
    return s->cls.append ? s->cls.append(s->user, key, value, size) : own_lacks(s, "tt_store_append");
}

/* ---- calls that are made of others */

static tt_status own_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    TT__TRY(own_wait(store, keys, n, own_of(store)->timeout_ms));
    for (size_t i = 0; i < n; i++) {
        tt_status status = own_get(store, keys[i], &values[i]);
        while (status && i-- > 0)
            tt_store_value_free(&values[i]);
        if (status)
            return status;
    }
    return TT_OK;
}

static tt_status own_multi_set(tt_store *store, const char *const *keys, const void *const *values, const size_t *sizes,
                               size_t n) {
    for (size_t i = 0; i < n; i++)
        TT__TRY(own_set(store, keys[i], values[i], sizes[i]));
    return TT_OK;
}

static tt_status own_list_keys(tt_store *store, char ***keys, size_t *n) {
    (void)keys;
    (void)n;
    return own_lacks(own_of(store), "tt_store_list_keys");
}

/* Count arrivals under the key; who comes last says so under another. */
static tt_status own_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    int64_t come = 0;
    size_t size = strlen(key) + sizeof "/open";
    char *open = malloc(size);
    if (!open)
        return tt__fail(TT_ERR_MEMORY, "tt_store_barrier: no memory for a key");
    memcpy(open, key, size - sizeof "/open");
    memcpy(open + size - sizeof "/open", "/open", sizeof "/open");
    const char *const awaited = open;
    tt_status status = own_add(store, key, 1, &come);
    if (!status && come >= world_size)
        status = own_set(store, open, "1", 1);
    if (!status)
        status = own_wait(store, &awaited, 1, timeout_ms);
    free(open);
    return status;
}

/* ---- life */

static int own_port(const tt_store *store) {
    (void)store;
    return 0;
}

static int64_t own_timeout_ms(const tt_store *store) { return own_of(store)->timeout_ms; }

static void own_set_timeout_ms(tt_store *store, int64_t timeout_ms) { ((own_store *)store)->timeout_ms = timeout_ms; }

static void own_free(tt_store *store) {
    own_store *s = (own_store *)store;
    if (s->cls.destroy)
        s->cls.destroy(s->user);
    tt__quarantine(s, sizeof *s, free);
}

static const tt__store_ops own_ops = {
    .free = own_free,
    .port = own_port,
    .timeout_ms = own_timeout_ms,
    .set_timeout_ms = own_set_timeout_ms,
    .set = own_set,
    .get = own_get,
    .add = own_add,
    .compare_set = own_compare_set,
    .wait = own_wait,
    .check = own_check,
    .delete_key = own_delete_key,
    .num_keys = own_num_keys,
    .append = own_append,
    .multi_get = own_multi_get,
    .multi_set = own_multi_set,
    .list_keys = own_list_keys,
    .barrier = own_barrier,
};

tt_status tt__store_new(tt_store **out, const tt__store_class *cls, void *user, int64_t timeout_ms) {
    own_store *s = calloc(1, sizeof *s);
    *out = s ? &s->base : NULL;
    if (!s)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", cls->name);
    s->base.ops = &own_ops;
    s->cls = *cls;
    s->user = user;
    s->timeout_ms = timeout_ms;
    return TT_OK;
}
