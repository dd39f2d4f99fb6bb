/* What tells, while ranks join, that another one won't: its launcher's note that it has ended, or another rank's that
 * joining has failed. */
#ifndef TT_COMM_RENDEZVOUS_JOINING_WATCH_H
#define TT_COMM_RENDEZVOUS_JOINING_WATCH_H

#include "comm/rendezvous/rendezvous.h"

typedef struct tt__joining_watch {
    const tt__rendezvous *rendezvous;
    int64_t due_ms, pause_ms; /* of the next look */
} tt__joining_watch;

/* Begin to watch. `rendezvous` is borrowed. */
void tt__joining_watch_begin(tt__joining_watch *watch, const tt__rendezvous *rendezvous);

/* Is a look due? Ever more rarely, down to every 1.6 s. */
bool tt__joining_watch_due(const tt__joining_watch *watch);

/* Look after the ranks that are still absent. Fails with TT_ERR_PEER if one of them has ended, or any rank has failed
 * to join. A store that does not answer is no failure of a rank. */
tt_status tt__joining_watch_look(tt__joining_watch *watch, const tt__rankset *absent);

#endif
