/* Callbacks of works.
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

#include "comm/group.h"

#include <pthread.h>

typedef struct tt__callback {
    struct tt__callback *next;
    tt_work_fn fn;
    void *user;
    tt_group *group;
    const tt_work *work;         /* only compared: it may be gone */
    struct tt__landing *landing; /* of the work, which happens first; held, or NULL: landing.h */
    tt_status status;            /* from here on: what came of the work */
    int source;
    char *text; /* of the error, or NULL */
} tt__callback;

/* In the order in which their works were done. */
typedef struct tt__callbacks {
    tt__callback *first, *last;
} tt__callbacks;

/* Hang it on its work, or put it among those due if that is done. The lock is held, as in the next. */
void tt__callback_attach(tt__callbacks *due, tt_work *work, tt__callback *callback);

/* The work is done: so its callbacks are due. */
void tt__callbacks_due(tt__callbacks *due, tt_work *work);

/* Give the lock back, and run what is due: nothing in a callback, whose own caller goes on with the rest. */
void tt__callbacks_unlock(tt__callbacks *due, pthread_mutex_t *lock);

/* The group ends: give the lock back when its callbacks have run, also those that other threads run. */
void tt__callbacks_settle(tt__callbacks *due, pthread_mutex_t *lock, tt_group *group);

/* Forget those due. */
void tt__callbacks_drop(tt__callbacks *due);

#endif
