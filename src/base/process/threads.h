/* Threads: the library's own and the program's, conditions with deadlines, signals, and stacks. */
#ifndef TT_BASE_THREADS_H
#define TT_BASE_THREADS_H

#include "base/export.h"
#include "base/machine/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Start a thread that runs `run(arg)` with all signals blocked: they belong to the program's own threads. TT_ERR_SYSTEM
 * names it as `what` ("the store's thread"), and the limits that it may have met. */
TT__EXPORT tt_status tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg, const char *what);

/* Wait until the thread has ended. */
void tt__thread_join(pthread_t thread);

/* Count the calling thread as one of the library's from now on, as if tt__thread_create() had started it. */
void tt__thread_is_ours(void);

/* Count the threads of this process that are not the library's. A main thread that has ended counts. 2 if they can't be
 * counted. */
int tt__program_threads(void);

/* Have all threads of the program ended, the main thread by pthread_exit()? Then only the library's threads keep the
 * process alive. */
bool tt__program_has_ended(void);

/* Initialise a condition whose timed waits are measured in tt__now_ms() time. */
void tt__cond_init(pthread_cond_t *condition);

/* Return the moment `deadline_ms` as pthread_cond_timedwait() takes it. */
static inline struct timespec tt__timespec_ms(int64_t deadline_ms) {
    return (struct timespec){.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
}

/* Block signals in this thread until tt__signals_release(), except those that its own instructions raise. */
TT__EXPORT void tt__signals_hold(sigset_t *before);
TT__EXPORT void tt__signals_release(const sigset_t *before);

/* Is enough of this thread's stack left, 256 KiB or half of a small stack, for calls that nest as deeply as a program
 * asks? *size becomes the size of the whole stack. True if that is unknown, as on a stack that the program made. Cheap
 * after a thread's first call. */
TT__EXPORT bool tt__stack_has_room(size_t *size);

/* How often OpenMP's threads should poll before they sleep. libgomp's poll for milliseconds, and take the CPU from the
 * threads that they wait for. A step on 2 threads beside a busy process took 5 times as long as on one thread; with
 * this number (some 50 us), 1.2 times. */
#define TT__OPENMP_SPINS_VARIABLE "GOMP_SPINCOUNT" /* libgomp reads it when it is loaded */
#define TT__OPENMP_SPINS "4000"

/* Has the user chosen how OpenMP's threads wait? */
static inline bool tt__openmp_waits_as_told(void) {
    const char *policy = getenv("OMP_WAIT_POLICY"), *spins = getenv(TT__OPENMP_SPINS_VARIABLE);
    return (policy && *policy) || (spins && *spins);
}

#endif
