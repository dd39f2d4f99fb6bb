/* Callbacks of works, and their landings.
 *
 * A callback hangs on its work until that is done. Then, under the lock that guards the work, it is put among those
 * that are due, and whoever gives that lock back runs them, without any lock: tt__callbacks_unlock(). Each counts among
 * its group's works until it has returned, so that a synchronous call doesn't take the group for idle, and goes by the
 * lock (native/submit.c).
 *
 * Exactly once: tt__callbacks_due() takes them off the work, and the thread that takes one off those due runs it. In a
 * forked child they are dropped: they are the parent's. */
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
    struct tt__landing *landing; /* of the work, which happens first; held, or NULL */
    tt_status status;            /* from here on: what came of the work */
    int source;
    char *text; /* of the error, or NULL */
} tt__callback;

/* Callbacks that are due, in the order in which their works were done. */
typedef struct tt__callbacks {
    tt__callback *first, *last;
} tt__callbacks;

/* Hang it on its work, or put it among those due if that is done. The lock is held, as in the next. */
void tt__callback_attach(tt__callbacks *due, tt_work *work, tt__callback *callback);

/* The work is done: make its callbacks due. */
void tt__callbacks_due(tt__callbacks *due, tt_work *work);

/* Release the lock, and run the callbacks that are due. Within a callback run none: the thread that runs that one goes
 * on with the rest. */
void tt__callbacks_unlock(tt__callbacks *due, pthread_mutex_t *lock);

/* The group ends: release the lock when all its callbacks have returned, also those in other threads. */
void tt__callbacks_settle(tt__callbacks *due, pthread_mutex_t *lock, tt_group *group);

/* Forget those due. */
void tt__callbacks_drop(tt__callbacks *due);

/* ---- landings
 *
 * A landing is the end of an asynchronous call that works on copies: its result is brought to where the caller wants
 * it, before the work counts as done.
 *
 * Exactly once, by whoever comes first: the work's done callback, or a thread that waits for the work or asks whether
 * it is done; others wait until it has happened. So it is there when tt_work_wait() returns, when
 * tt_work_is_completed() says true, and in the callbacks of the program, and it happens also where nobody waits. */

typedef struct tt__landing tt__landing;

/* Make one that calls end(user, status of the work), which frees what the call had; its error is the work's. It must
 * not wait for peers. Returns NULL if there is no memory; `end` is never called then. */
TT__EXPORT tt__landing *tt__landing_new(tt_status (*end)(void *user, tt_status work), void *user);

/* Hand the landing to the work; if work is NULL, end it now, as the call failed with `status`. */
TT__EXPORT void tt__landing_set(tt__landing *landing, tt_work *work, tt_status status);

#endif
