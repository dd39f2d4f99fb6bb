/* Threads that do numbered jobs; their results are taken in the order in which the jobs were added.
 *
 * Jobs live in a ring of slots, which the user fills and reads. tt__loader_crew_add() hands a slot to a worker, and
 * tt__loader_crew_take() hands it back to the user. One thread at a time adds, takes, cancels and ends. */
#ifndef TT_DATA_CREW_H
#define TT_DATA_CREW_H

#include <tutti/base.h>

typedef struct tt__loader_crew tt__loader_crew;

/* Do the job in `slot`; `worker` is this thread's number, from 0. */
typedef void (*tt__loader_crew_work)(void *user, int worker, int64_t slot);

/* Start `workers` threads, whose signals are blocked, and a ring of `slots`, each at least 1. *out is NULL after a
 * failure: TT_ERR_MEMORY, TT_ERR_SYSTEM. */
tt_status tt__loader_crew_start(tt__loader_crew **out, int workers, int64_t slots, tt__loader_crew_work work,
                                void *user);

/* Return the slot of the next job, for the user to fill; -1: all are taken. */
int64_t tt__loader_crew_free_slot(tt__loader_crew *crew);

/* Give that slot to the workers. */
void tt__loader_crew_add(tt__loader_crew *crew);

/* Wait for the oldest job, and return its slot; -1: there is none. The slot stays the user's until the next call. */
int64_t tt__loader_crew_take(tt__loader_crew *crew);

/* Forget all jobs, after waiting for the end of those that workers have begun. */
void tt__loader_crew_cancel(tt__loader_crew *crew);

/* Is this a forked child of the process that has the threads? Then nothing but tt__loader_crew_end() is allowed. */
bool tt__crew_is_elsewhere(const tt__loader_crew *crew);

/* Cancel all jobs, and end the threads. NULL is allowed. */
void tt__loader_crew_end(tt__loader_crew *crew);

#endif
