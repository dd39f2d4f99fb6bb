/* Threads that do numbered jobs; their results are taken in the order in which the jobs were added.
 *
 * Jobs live in a ring of slots, which the user fills and reads: a slot belongs to the user, from tt__crew_add() to a
 * worker, and from tt__crew_take() to the user again. One thread at a time adds, takes, cancels and ends. */
#ifndef TT_DATA_CREW_H
#define TT_DATA_CREW_H

#include <tutti/base.h>

typedef struct tt__crew tt__crew;

/* Do the job in `slot`; `worker` is this thread's number, from 0. */
typedef void (*tt__crew_work)(void *user, int worker, int64_t slot);

/* Start `workers` threads, whose signals are blocked, and a ring of `slots`, each at least 1. *out is NULL after a
 * failure: TT_ERR_MEMORY, TT_ERR_SYSTEM. */
tt_status tt__crew_start(tt__crew **out, int workers, int64_t slots, tt__crew_work work, void *user);

/* Return the slot of the next job, for the user to fill; -1: all are taken. */
int64_t tt__crew_free_slot(tt__crew *crew);

/* Give that slot to the workers. */
void tt__crew_add(tt__crew *crew);

/* Wait for the oldest job, and return its slot; -1: there is none. The slot stays the user's until the next call. */
int64_t tt__crew_take(tt__crew *crew);

/* Forget all jobs: those that no worker has begun, and, after waiting for their ends, the others. */
void tt__crew_cancel(tt__crew *crew);

/* Is this a forked child of the process that has the threads? Then nothing but tt__crew_end() is allowed. */
bool tt__crew_is_elsewhere(const tt__crew *crew);

/* Cancel all jobs, and end the threads. NULL is allowed. */
void tt__crew_end(tt__crew *crew);

#endif
