/* HashStore: keys for the threads of one process. */
#include "base/error.h"
#include "base/process/threads.h"
#include "base/quarantine.h"
#include "store/local_store.h"

#include <stdio.h>
#include <stdlib.h>

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
