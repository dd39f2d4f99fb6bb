/* The end of an asynchronous call that works on copies: its result is brought to where the caller wants it, before the
 * work counts as done.
 *
 * Exactly once, by whoever comes first: the work's done callback, or a thread that waits for the work or asks whether
 * it is done; others wait until it has happened. So it is there when tt_work_wait() returns, when
 * tt_work_is_completed() says true, and in the callbacks of the program, and it happens also where nobody waits. */
#ifndef TT_COMM_LANDING_H
#define TT_COMM_LANDING_H

#include "base/export.h"

#include <tutti/comm.h>

typedef struct tt__landing tt__landing;

/* Make one that calls end(user, status of the work), which frees what the call had; its error is the work's. It must
 * not wait for peers. NULL: no memory, and `end` is never called. */
TT__EXPORT tt__landing *tt__landing_new(tt_status (*end)(void *user, tt_status work), void *user);

/* Leave it to the work, or with work NULL end it now: the call failed with `status`. */
TT__EXPORT void tt__landing_set(tt__landing *landing, tt_work *work, tt_status status);

/* For work.c: the work's landing, held, or NULL; let it happen once the work is done, with `status`, which is returned,
 * or its own error; let it go. */
tt__landing *tt__landing_hold(const tt_work *work);
tt_status tt__landing_happen(tt__landing *landing, tt_status status);
void tt__landing_drop(tt__landing *landing);

#endif
