/* Threads that the library starts, and conditions with deadlines. */
#ifndef TT_BASE_THREADS_H
#define TT_BASE_THREADS_H

#include "base/export.h"
#include "base/machine/clock.h"

#include <pthread.h>
#include <stdbool.h>

/* Start a thread that runs `run(arg)` with all signals blocked: they belong to the program's own threads. TT_ERR_SYSTEM
 * names it as `what` ("the store's thread"), and the limits that it may have met. */
TT__EXPORT tt_status tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg, const char *what);

/* Wait until the thread has ended. */
void tt__thread_join(pthread_t thread);

/* Count the calling thread among the library's from now on, as one that tt__thread_create() started. */
void tt__thread_is_ours(void);

/* Count the threads of this process that tt__thread_create() did not start, the main thread's remains included; at
 * least 2 where that can't be found out. */
int tt__program_threads(void);

/* Have all threads of the program ended, the main thread by pthread_exit(), so that only the library's keep the process
 * alive? */
bool tt__program_has_ended(void);

/* Initialise a condition whose timed waits are measured in tt__now_ms() time. */
void tt__cond_init(pthread_cond_t *condition);

/* Return the moment `deadline_ms` as pthread_cond_timedwait() takes it. */
static inline struct timespec tt__timespec_ms(int64_t deadline_ms) {
    return (struct timespec){.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
}

#endif
