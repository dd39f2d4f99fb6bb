/* Callbacks of works, and landings, which deliver results.
 *
 * A callback stays with its work until the work is done, and then becomes due, under the lock that guards the work. The
 * thread that releases the lock runs the due callbacks, without any lock: tt__callbacks_unlock(). Until it has
 * returned, a callback counts among its group's works: a synchronous call must not take the group for idle, and skip
 * the lock (native/submit.c).
 *
 * Each runs exactly once: tt__callbacks_due() takes it off the work, and the thread that takes it off the due ones runs
 * it. A forked child drops its copies: they are the parent's. */
#ifndef TT_COMM_CALLBACK_H
#define TT_COMM_CALLBACK_H

#include "base/export.h"

#include <tutti/comm.h>

#include <pthread.h>

typedef struct tt__callback {
    struct tt__callback *next;
    tt_work_fn fn;
    void *user;
    tt_group *group;
    const tt_work *work;         /* only compared: it may be gone */
    struct tt__landing *landing; /* the work's, which happens first; a reference, or NULL */
    tt_status status;            /* the work's */
    int source;
    char *text; /* of its error, or NULL */
} tt__callback;

/* Callbacks that are due, in the order in which their works were done. */
typedef struct tt__callbacks {
    tt__callback *first, *last;
} tt__callbacks;

/* Add the callback to its work; if the work is done, make it due. The lock is held, also in the next function. */
void tt__callback_attach(tt__callbacks *due, tt_work *work, tt__callback *callback);

/* The work is done: make its callbacks due. */
void tt__callbacks_due(tt__callbacks *due, tt_work *work);

/* Release the lock, and run the callbacks that are due. Within a callback, run none: the thread that runs the outer one
 * goes on with the rest. */
void tt__callbacks_unlock(tt__callbacks *due, pthread_mutex_t *lock);

/* At a group's end, wait until all its callbacks have returned, also in other threads, and release the lock. */
void tt__callbacks_settle(tt__callbacks *due, pthread_mutex_t *lock, tt_group *group);

/* Free the due callbacks. */
void tt__callbacks_drop(tt__callbacks *due);

/* ---- landings
 *
 * A landing ends an asynchronous call that works on copies: it brings the result to where the caller wants it, before
 * the work counts as done.
 *
 * It happens exactly once, even if nobody waits: in the work's done callback, or in a thread that waits for the work or
 * asks whether it is done, whichever comes first; the others wait for it. So the result is in place when tt_work_wait()
 * returns, when tt_work_is_completed() returns true, and in the program's callbacks. */

typedef struct tt__landing tt__landing;

/* Make a landing that calls end(user, status of the work). `end` frees what the call had, and must not wait for peers;
 * its error becomes the work's. Returns NULL if there is no memory; `end` is never called then. */
TT__EXPORT tt__landing *tt__landing_new(tt_status (*end)(void *user, tt_status work), void *user);

/* Hand the landing to the work; if work is NULL, end it now, as the call failed with `status`. */
TT__EXPORT void tt__landing_set(tt__landing *landing, tt_work *work, tt_status status);

#endif
