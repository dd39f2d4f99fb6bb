/* A store is a table of operations, which tutti/store.h documents. store_calls.c checks the arguments before it calls
 * an operation: pointers are not NULL, and a timeout is a number of ms. */
#ifndef TT_STORE_STORE_OPS_H
#define TT_STORE_STORE_OPS_H

#include "base/error.h"
#include "base/process/threads.h"

#include <tutti/store.h>

typedef struct tt__store_ops {
    void (*free)(tt_store *);
    int (*port)(const tt_store *);
    int64_t (*timeout_ms)(const tt_store *);
    void (*set_timeout_ms)(tt_store *, int64_t);
    tt_status (*set)(tt_store *, const char *key, const void *value, size_t size);
    tt_status (*get)(tt_store *, const char *key, tt_store_value *value);
    tt_status (*add)(tt_store *, const char *key, int64_t delta, int64_t *result);
    tt_status (*compare_set)(tt_store *, const char *key, const void *expected, size_t expected_size,
                             const void *desired, size_t desired_size, tt_store_value *value);
    tt_status (*wait)(tt_store *, const char *const *keys, size_t n, int64_t timeout_ms);
    tt_status (*check)(tt_store *, const char *const *keys, size_t n, bool *all);
    tt_status (*delete_key)(tt_store *, const char *key, bool *deleted);
    tt_status (*num_keys)(tt_store *, int64_t *count);
    tt_status (*append)(tt_store *, const char *key, const void *value, size_t size);
    tt_status (*multi_get)(tt_store *, const char *const *keys, size_t n, tt_store_value *values);
    tt_status (*multi_set)(tt_store *, const char *const *keys, const void *const *values, const size_t *sizes,
                           size_t n);
    tt_status (*list_keys)(tt_store *, char ***keys, size_t *n);
    tt_status (*barrier)(tt_store *, const char *key, int64_t world_size, int64_t timeout_ms);
    /* tt__store_life(), tt__store_lasting_life(); NULL: the store has none */
    const char *(*life)(const tt_store *);
    const char *(*lasting_life)(const tt_store *);
} tt__store_ops;

/* First member of every kind of store. */
struct tt_store {
    const tt__store_ops *ops;
};

/* Make the list that tt_store_list_keys() returns, in one block, from the `n` NUL-terminated strings that follow each
 * other in `text`; NULL: no memory. */
char **tt__store_key_list(const char *text, size_t text_size, size_t n);

/* ---- a lock by which one call at a time uses a store, with a deadline: another thread's call may take long ---- */

typedef struct tt__call_lock {
    pthread_mutex_t mutex;
    pthread_cond_t released;
    bool taken;
} tt__call_lock;

static inline void tt__call_lock_init(tt__call_lock *lock) {
    lock->taken = false;
    pthread_mutex_init(&lock->mutex, NULL);
    tt__cond_init(&lock->released);
}

static inline void tt__call_lock_destroy(tt__call_lock *lock) {
    pthread_cond_destroy(&lock->released);
    pthread_mutex_destroy(&lock->mutex);
}

/* Take the lock. TT_ERR_TIMEOUT: another call held it until the deadline. */
static inline tt_status tt__call_lock_take(tt__call_lock *lock, int64_t deadline_ms) {
    const struct timespec until = tt__timespec_ms(deadline_ms);
    int errnum = 0;
    pthread_mutex_lock(&lock->mutex);
    while (lock->taken && !errnum)
        errnum = pthread_cond_timedwait(&lock->released, &lock->mutex, &until);
    bool free = !lock->taken;
    lock->taken = true;
    pthread_mutex_unlock(&lock->mutex);
    return free ? TT_OK : tt__fail(TT_ERR_TIMEOUT, "another thread's call on this store took all the time");
}

static inline void tt__call_lock_release(tt__call_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->taken = false;
    pthread_cond_signal(&lock->released);
    pthread_mutex_unlock(&lock->mutex);
}

#endif
