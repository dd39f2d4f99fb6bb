/* One call at a time. Another thread's may be a long wait, so taking one's turn has a deadline, too. */
#ifndef TT_STORE_TURN_H
#define TT_STORE_TURN_H

#include "base/error.h"

#include <pthread.h>
#include <time.h>

typedef struct tt__turn {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool taken;
} tt__turn;

static inline void tt__turn_init(tt__turn *turn) {
    pthread_condattr_t monotonic;
    turn->taken = false;
    pthread_mutex_init(&turn->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&turn->over, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static inline void tt__turn_destroy(tt__turn *turn) {
    pthread_cond_destroy(&turn->over);
    pthread_mutex_destroy(&turn->lock);
}

static inline tt_status tt__turn_take(tt__turn *turn, int64_t deadline_ms) {
    const struct timespec until = {.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
    int errnum = 0;
    pthread_mutex_lock(&turn->lock);
    while (turn->taken && !errnum)
        errnum = pthread_cond_timedwait(&turn->over, &turn->lock, &until);
    bool free = !turn->taken;
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return free ? TT_OK : tt__fail(TT_ERR_TIMEOUT, "another thread's call on this store took all the time");
}

static inline void tt__turn_end(tt__turn *turn) {
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_signal(&turn->over);
    pthread_mutex_unlock(&turn->lock);
}

#endif
