/* The one place that asks what may be wrong with a work that takes long. */
#ifndef TT_COMM_WATCH_LOOK_H
#define TT_COMM_WATCH_LOOK_H

#include "comm/native_group.h"

enum { TT__LOOK_MS = 50 /* between looks at the peers' processes */ };

typedef enum tt__verdict {
    TT__LOOK_FINE,
    TT__LOOK_FAILED, /* the group has failed already; its error is recorded */
    TT__LOOK_FAILS   /* *culprit, a group, is to fail with the error that is recorded */
} tt__verdict;

/* Look after those whom the work waits for, and whether its time is up. To be asked every now and then; looks at
 * processes and at the peers' calls at most every TT__LOOK_MS. Tells those who look from outside whom this process
 * waits for. The lock is held, and given back while other hosts are asked. */
tt__verdict tt__look_closely(tt_work *waiter, tt_group **culprit);

/* What holds the work up: itself, one before it in the queue, or a call on an inner group. */
tt_work *tt__blocking_work(tt_work *work);

/* This process waits for nobody any more. */
void tt__note_going_on(tt__world *world);

#endif
