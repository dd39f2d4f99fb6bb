/* A store whose calls are functions of the program: tt_store_new(). */
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "store/store_ops.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_MS = 300000 };

typedef struct custom_store {
    tt_store base;
    tt_store_class cls;
    void *user;
    _Atomic int64_t timeout_ms;
} custom_store;

static const custom_store *custom_of(const tt_store *store) { return (const custom_store *)store; }

static tt_status custom_lacks(const custom_store *s, const char *call) {
    return tt__fail(TT_ERR_UNSUPPORTED, "%s: %s has no such call", call, s->cls.name);
}

/* ---- the calls of the class */

static tt_status custom_set(tt_store *store, const char *key, const void *value, size_t size) {
    const custom_store *s = custom_of(store);
    return s->cls.set(s->user, key, value, size);
}

static tt_status custom_get(tt_store *store, const char *key, tt_store_value *value) {
    const custom_store *s = custom_of(store);
    return s->cls.get(s->user, key, s->timeout_ms, value);
}

static tt_status custom_add(tt_store *store, const char *key, int64_t delta, int64_t *result) {
    const custom_store *s = custom_of(store);
    return s->cls.add(s->user, key, delta, result);
}

static tt_status custom_wait(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms) {
    const custom_store *s = custom_of(store);
    return s->cls.wait(s->user, keys, (int64_t)n, timeout_ms);
}

static tt_status custom_check(tt_store *store, const char *const *keys, size_t n, bool *all) {
    const custom_store *s = custom_of(store);
    return s->cls.check(s->user, keys, (int64_t)n, all);
}

static tt_status custom_compare_set(tt_store *store, const char *key, const void *expected, size_t expected_size,
                                    const void *desired, size_t desired_size, tt_store_value *value) {
    const custom_store *s = custom_of(store);
    if (!s->cls.compare_set)
        return custom_lacks(s, "tt_store_compare_set");
    return s->cls.compare_set(s->user, key, expected, expected_size, desired, desired_size, value);
}

static tt_status custom_delete_key(tt_store *store, const char *key, bool *deleted) {
    const custom_store *s = custom_of(store);
    return s->cls.delete_key ? s->cls.delete_key(s->user, key, deleted) : custom_lacks(s, "tt_store_delete_key");
}

static tt_status custom_num_keys(tt_store *store, int64_t *count) {
    const custom_store *s = custom_of(store);
    return s->cls.num_keys ? s->cls.num_keys(s->user, count) : custom_lacks(s, "tt_store_num_keys");
}

static tt_status custom_append(tt_store *store, const char *key, const void *value, size_t size) {
    const custom_store *s = custom_of(store);
    return s->cls.append ? s->cls.append(s->user, key, value, size) : custom_lacks(s, "tt_store_append");
}

/* ---- calls that are made of others */

static tt_status custom_multi_get(tt_store *store, const char *const *keys, size_t n, tt_store_value *values) {
    TT__TRY(custom_wait(store, keys, n, custom_of(store)->timeout_ms));
    for (size_t i = 0; i < n; i++) {
        tt_status status = custom_get(store, keys[i], &values[i]);
        while (status && i-- > 0)
            tt_store_value_free(&values[i]);
        if (status)
            return status;
    }
    return TT_OK;
}

static tt_status custom_multi_set(tt_store *store, const char *const *keys, const void *const *values,
                                  const size_t *sizes, size_t n) {
    for (size_t i = 0; i < n; i++)
        TT__TRY(custom_set(store, keys[i], values[i], sizes[i]));
    return TT_OK;
}

static tt_status custom_list_keys(tt_store *store, char ***keys, size_t *n) {
    (void)keys;
    (void)n;
    return custom_lacks(custom_of(store), "tt_store_list_keys");
}

/* Count arrivals under the key; the last one to come sets another key. */
static tt_status custom_barrier(tt_store *store, const char *key, int64_t world_size, int64_t timeout_ms) {
    int64_t come = 0;
    size_t size = strlen(key) + sizeof "/open";
    char *open = malloc(size);
    if (!open)
        return tt__fail(TT_ERR_MEMORY, "tt_store_barrier: no memory for a key");
    memcpy(open, key, size - sizeof "/open");
    memcpy(open + size - sizeof "/open", "/open", sizeof "/open");
    const char *const awaited = open;
    tt_status status = custom_add(store, key, 1, &come);
    if (!status && come >= world_size)
        status = custom_set(store, open, "1", 1);
    if (!status)
        status = custom_wait(store, &awaited, 1, timeout_ms);
    free(open);
    return status;
}

/* ---- life */

static int custom_port(const tt_store *store) {
    (void)store;
    return 0;
}

static int64_t custom_timeout_ms(const tt_store *store) { return custom_of(store)->timeout_ms; }

static void custom_set_timeout_ms(tt_store *store, int64_t timeout_ms) {
    ((custom_store *)store)->timeout_ms = timeout_ms;
}

static void custom_free(tt_store *store) {
    custom_store *s = (custom_store *)store;
    if (s->cls.destroy)
        s->cls.destroy(s->user);
    tt__quarantine(s, sizeof *s, free);
}

static const tt__store_ops custom_ops = {
    .free = custom_free,
    .port = custom_port,
    .timeout_ms = custom_timeout_ms,
    .set_timeout_ms = custom_set_timeout_ms,
    .set = custom_set,
    .get = custom_get,
    .add = custom_add,
    .compare_set = custom_compare_set,
    .wait = custom_wait,
    .check = custom_check,
    .delete_key = custom_delete_key,
    .num_keys = custom_num_keys,
    .append = custom_append,
    .multi_get = custom_multi_get,
    .multi_set = custom_multi_set,
    .list_keys = custom_list_keys,
    .barrier = custom_barrier,
};

/* The first function that the class lacks, or NULL. */
static const char *lacking_function(const tt_store_class *cls) {
    const struct {
        bool there;
        const char *name;
    } required[] = {
        {cls->set, "set"}, {cls->get, "get"}, {cls->add, "add"}, {cls->wait, "wait"}, {cls->check, "check"}};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!required[i].there)
            return required[i].name;
    return NULL;
}

static tt_status custom_new(tt_store **out, const tt_store_class *cls, void *user, int64_t timeout_ms) {
    const char *missing = lacking_function(cls);
    if (missing)
        return tt__fail(TT_ERR_INVALID, "tt_store_new: the class \"%s\" has no function `%s`, which is required",
                        cls->name, missing);
    if (timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID, "tt_store_new: expected .timeout_ms of at least 0, got %lld",
                        (long long)timeout_ms);
    custom_store *s = calloc(1, sizeof *s);
    if (!s)
        return tt__fail(TT_ERR_MEMORY, "tt_store_new: out of memory");
    s->base.ops = &custom_ops;
    s->cls = *cls;
    s->user = user;
    s->timeout_ms = timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS;
    *out = &s->base;
    return TT_OK;
}

tt_status tt_store_new_with(const tt_store_new_args *args, size_t size) {
    tt_store_new_args a;
    tt_store_class cls;
    TT__ARGS_COPY(a, args, size);
    if (a.out)
        *a.out = NULL;
    if (!a.cls || !a.cls_size)
        return tt__fail(TT_ERR_INVALID, "tt_store_new: the class is NULL or its size is 0");
    TT__ARGS_COPY(cls, a.cls, a.cls_size);
    if (!cls.name)
        cls.name = "a store";
    tt_status status =
        a.out ? custom_new(a.out, &cls, a.user, a.timeout_ms) : tt__fail(TT_ERR_INVALID, "tt_store_new: .out is NULL");
    if (status && cls.destroy)
        cls.destroy(a.user);
    return status;
}
