/* A lock with a deadline: one call on a store at a time. Another thread's call may wait long, so taking the lock may
 * time out. */
#ifndef TT_STORE_CALL_LOCK_H
#define TT_STORE_CALL_LOCK_H

#include "base/error.h"
#include "base/process/threads.h"

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
