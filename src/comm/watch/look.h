/* The one place that looks for what may be wrong with a work that takes long. */
#ifndef TT_COMM_WATCH_LOOK_H
#define TT_COMM_WATCH_LOOK_H

#include "comm/native_group.h"

enum { TT__LOOK_MS = 50 /* between looks at the peers' processes */ };

typedef enum tt__look_result {
    TT__LOOK_FINE,
    TT__LOOK_FAILED, /* the group has failed already; its error is recorded */
    TT__LOOK_FAILS   /* *culprit, a group, is to fail with the error that is recorded */
} tt__look_result;

/* Check the ranks that the work waits for, and its deadline. To be called every now and then; checks processes and the
 * peers' calls at most every TT__LOOK_MS. Publishes which rank this process waits for. The lock is held, and given back
 * while other hosts are asked. */
tt__look_result tt__look_closely(tt_work *waiter, tt_group **culprit);

/* Publish that this process no longer waits. */
void tt__note_going_on(tt__world *world);

#endif
