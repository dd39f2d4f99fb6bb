/* Verdicts on peers: who is gone, frozen, or out of the group. Nothing here ends a group or a work; whoever asks does.
 * The lock is held. */
#ifndef TT_COMM_WATCH_FAILURE_H
#define TT_COMM_WATCH_FAILURE_H

#include "comm/native_group.h"

/* Whom of the group the work waits for. */
void tt__work_waits_for(const tt_work *work, tt__rankset *set);

/* Is somebody whom the work waits for gone, frozen or out of the group? `processes`: look at the processes too, not
 * only at what ranks say of themselves. TT_OK: nobody is. Otherwise the error is recorded. */
tt_status tt__check_peers(tt_work *work, bool processes);

/* Has rank r said that the group failed? Its error, recorded. */
tt_status tt__check_failed(const tt_group *group, int r);

/* Who has left will not receive any more: has one of those left to whom the work, sends and receives, sends something?
 * Recorded. */
tt_status tt__check_receivers(const tt_work *work);

/* A message to or from rank r failed: is it gone, or has it failed or left the group? Recorded. */
tt_status tt__check_rank(tt_work *work, int r);

/* Of a group that stands behind another engine's: has rank r failed, ended or frozen, or left where it must not?
 * Recorded; `doing` ends the text. Whoever asks keeps world->last_check_ms. */
tt_status tt__check_gone(const tt_group *group, int r, bool may_leave, const char *doing);

#endif
