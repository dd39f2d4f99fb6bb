/* PrefixStore: another store's keys below a prefix. */
#include "base/error.h"
#include "base/quarantine.h"
#include "store/signed.h"
#include "store/store_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct prefix_store {
    tt_store base;
    tt_store *inner;
    size_t prefix_size;
    char prefix[]; /* with its slash */
} prefix_store;

static tt_store *inner_of(const tt_store *store) { return ((const prefix_store *)store)->inner; }

/* Return "prefix/key", for the caller to free; NULL: no memory. */
static char *join_key(const tt_store *store, const char *key) {
    const prefix_store *p = (const prefix_store *)store;
    size_t size = strlen(key) + 1;
    char *joined = malloc(p->prefix_size + size);
    if (!joined)
        return tt__fail_null(TT_ERR_MEMORY, "prefix store: out of memory for a key");
    memcpy(joined, p->prefix, p->prefix_size);
    memcpy(joined + p->prefix_size, key, size);
    return joined;
}

static void free_joined(char **joined, size_t n) {
    for (size_t i = 0; joined && i < n; i++)
        free(joined[i]);
    free(joined);
}

static char **join_keys(const tt_store *store, const char *const *keys, size_t n) {
    char **joined = calloc(n + 1, sizeof *joined);
    if (!joined)
        return tt__fail_null(TT_ERR_MEMORY, "prefix store: out of memory for %zu keys", n);
    for (size_t i = 0; i < n; i++)
        if (!(joined[i] = join_key(store, keys[i]))) {
            free_joined(joined, n);
            return NULL;
        }
    return joined;
}

/* Run `call`, in which `k` is the joined key, or `ks` are the joined keys. */
#define WITH_KEY(call)                 \
    char *k = join_key(store, key);    \
    if (!k)                            \
        return TT_ERR_MEMORY;          \
    tt_store *inner = inner_of(store); \
    tt_status status = call;           \
    free(k);                           \
    return status

#define WITH_KEYS(call)                                            \
    char **ks = join_keys(store, keys, n);                         \
    if (!ks)                                                       \
        return TT_ERR_MEMORY;                                      \
    tt_store *inner = inner_of(store);                             \
    const char *const *const_ks = (const char *const *)(void *)ks; \
    tt_status status = call;                                       \
    free_joined(ks, n);                                            \
    return status

static tt_status prefix_set(tt_store *store, const char *key, const void *value, size_t size) {
    WITH_KEY(inner->ops->set(inner, k, value, size));
}

static tt_status prefix_get(tt_store *store, const char *key, tt_store_value *value) {
    WITH_KEY(inner->ops->get(inner, k, value));
}

static tt_status prefix_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    WITH_KEY(inner->ops->add(inner, k, delta, result));
}

static tt_status prefix_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                    const void *desired, size_t desired_size, tt_store_value *value) {
    WITH_KEY(inner->ops->compare_set(inner, k, expected, expected_size, desired, desired_size, value));
}

static tt_status prefix_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    WITH_KEYS(inner->ops->wait(inner, const_ks, n, timeout_ms));
}

static tt_status prefix_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    WITH_KEYS(inner->ops->check(inner, const_ks, n, all));
}

static tt_status prefix_delete_key(tt_store *store, const char *key, bool *deleted) {
    WITH_KEY(inner->ops->delete_key(inner, k, deleted));
}

static tt_status prefix_num_keys(tt_store *store, int64_t *count) {
    tt_store *inner = inner_of(store);
    return inner->ops->num_keys(inner, count);
}

static tt_status prefix_append(tt_store *store, const char *key, const void *value, size_t size) {
    WITH_KEY(inner->ops->append(inner, k, value, size));
}

static tt_status prefix_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    WITH_KEYS(inner->ops->multi_get(inner, const_ks, n, values));
}

static tt_status prefix_multi_set(tt_store *store, const char *const *keys, const void *const *values,
                                  const size_t *sizes, size_t n) {
    WITH_KEYS(inner->ops->multi_set(inner, const_ks, values, sizes, n));
}

/* Move the keys below the prefix to the front of the list, and remove the prefix from each. */
static tt_status prefix_list_keys(tt_store *store, char ***keys, size_t *n) {
    prefix_store *p = (prefix_store *)store;
    size_t all = 0, kept = 0;
    TT__TRY(p->inner->ops->list_keys(p->inner, keys, &all));
    for (size_t i = 0; i < all; i++)
        if (!strncmp((*keys)[i], p->prefix, p->prefix_size))
            (*keys)[kept++] = (*keys)[i] + p->prefix_size;
    (*keys)[kept] = NULL;
    *n = kept;
    return TT_OK;
}

static tt_status prefix_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    WITH_KEY(inner->ops->barrier(inner, k, world_size, timeout_ms));
}

static int prefix_port(const tt_store *store) { return tt_store_port(inner_of(store)); }

static int64_t prefix_timeout_ms(const tt_store *store) { return tt_store_timeout_ms(inner_of(store)); }

static void prefix_set_timeout_ms(tt_store *store, int64_t timeout_ms) {
    tt_store_set_timeout_ms(inner_of(store), timeout_ms);
}

static const char *prefix_life(const tt_store *store) { return tt__store_life(inner_of(store)); }

static const char *prefix_lasting_life(const tt_store *store) { return tt__store_lasting_life(inner_of(store)); }

static void prefix_free(tt_store *store) { tt__quarantine(store, sizeof(prefix_store), free); }

static const tt__store_ops prefix_ops = {
    .free = prefix_free,
    .port = prefix_port,
    .timeout_ms = prefix_timeout_ms,
    .set_timeout_ms = prefix_set_timeout_ms,
    .set = prefix_set,
    .get = prefix_get,
    .add = prefix_add,
    .compare_set = prefix_compare_set,
    .wait = prefix_wait,
    .check = prefix_check,
    .delete_key = prefix_delete_key,
    .num_keys = prefix_num_keys,
    .append = prefix_append,
    .multi_get = prefix_multi_get,
    .multi_set = prefix_multi_set,
    .list_keys = prefix_list_keys,
    .barrier = prefix_barrier,
    .life = prefix_life,
    .lasting_life = prefix_lasting_life,
};

tt_status tt_prefix_store(tt_store **out, const char *prefix, tt_store *base) {
    if (!out)
        return tt__fail(TT_ERR_INVALID, "tt_prefix_store: out is NULL");
    *out = NULL;
    if (!prefix || !base)
        return tt__fail(TT_ERR_INVALID, "tt_prefix_store: expected a prefix and a store, got NULL");
    size_t size = strlen(prefix);
    prefix_store *store = malloc(sizeof *store + size + 2);
    if (!store)
        return tt__fail(TT_ERR_MEMORY, "tt_prefix_store: out of memory");
    store->base.ops = &prefix_ops;
    store->inner = base;
    store->prefix_size = size + 1;
    memcpy(store->prefix, prefix, size);
    memcpy(store->prefix + size, "/", 2);
    *out = &store->base;
    return TT_OK;
}
