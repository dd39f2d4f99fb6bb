/* Verdicts on peers: which are gone, frozen, or out of the group. Nothing here ends a group or a work; the caller does.
 * The lock is held. */
#ifndef TT_COMM_WATCH_FAILURE_H
#define TT_COMM_WATCH_FAILURE_H

#include "comm/native_group.h"

/* Return the ranks of the group that the work waits for. */
void tt__work_waits_for(const tt_work *work, tt__rankset *set);

/* Is a rank that the work waits for gone, frozen or out of the group? `processes`: check the processes too, not only
 * what ranks publish. TT_OK: none is. Otherwise the error is recorded. */
tt_status tt__check_peers(tt_work *work, bool processes);

/* Has rank r published that the group failed? Its error, recorded. */
tt_status tt__check_failed(const tt_group *group, int r);

/* Has a rank left to which the work, sends and receives, sends something? It will not receive any more. Recorded. */
tt_status tt__check_receivers(const tt_work *work);

/* A message to or from rank r failed: is it gone, or has it failed or left the group? Recorded. */
tt_status tt__check_rank(tt_work *work, int r);

/* In a control group: has rank r failed, ended or frozen, or left where it must not? Recorded; `doing` ends the text.
 * The caller updates world->last_check_ms. */
tt_status tt__check_gone(const tt_group *group, int r, bool may_leave, const char *doing);

#endif
