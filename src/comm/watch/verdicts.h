/* Verdicts on peers: which are gone, frozen, or out of the group. Nothing here ends a group or a work; the caller does.
 * The lock is held. */
#ifndef TT_COMM_WATCH_VERDICTS_H
#define TT_COMM_WATCH_VERDICTS_H

#include "comm/native_group.h"

enum { TT__LOOK_MS = 50 /* between looks at the peers' processes */ };

typedef enum tt__look_result {
    TT__LOOK_FINE,
    TT__LOOK_FAILED, /* the group has failed already; its error is recorded */
    TT__LOOK_FAILS   /* the caller fails the group *culprit with the recorded error */
} tt__look_result;

/* Return the ranks of the group that the work waits for. */
void tt__work_waits_for(const tt_work *work, tt__rankset *set);

/* Is a rank that the work waits for gone, frozen or out of the group? `processes`: check the processes too, not only
 * what ranks publish. TT_OK: none is. Otherwise the error is recorded. */
tt_status tt__check_peers(tt_work *work, bool processes);

/* Has rank r published that the group failed? Its error, recorded. */
tt_status tt__check_failed(const tt_group *group, int r);

/* Has a rank left to which the work, a send or batch, sends something? Then it will not arrive. Recorded. */
tt_status tt__check_receivers(const tt_work *work);

/* A message to or from rank r failed: is it gone, or has it failed or left the group? Recorded. */
tt_status tt__check_rank(tt_work *work, int r);

/* In a control group: has rank r failed, ended or frozen, or left where it must not? Recorded; `doing` ends the text.
 * The caller updates world->last_check_ms. */
tt_status tt__check_gone(const tt_group *group, int r, bool may_leave, const char *doing);

/* Do ranks wait for each other in different calls, with this one in the circle or waiting for it? TT_ERR_MISMATCH,
 * recorded: which ranks, and in which calls. To be called regularly by a rank that has published which rank it waits
 * for. The lock is released while other hosts are asked. */
tt_status tt__check_deadlock(tt__world *world);

/* Publish which threads make the calls on this process's groups. To be called by a thread that waits. */
void tt__note_users(tt__world *world);

/* May another thread than the one that waits make this process's next call on the group? */
bool tt__may_call(const tt__world *world, uint32_t group);

/* Record TT_ERR_MISMATCH with what each rank called: the ranks differ in call `seq`, or shortly before. Not of an inner
 * group. */
tt_status tt__fail_differing(tt_group *group, uint32_t seq);

/* Record TT_ERR_MISMATCH with what each rank called: the words of the work's call, which all ranks have published,
 * differ. */
tt_status tt__fail_words(tt_work *work);

/* Note that the work, on messages, begins: remember its word, and compare it with what others have sent for it
 * already. */
void tt__note_begun(tt_work *work);

/* Compare this rank's call number `seq` with the word of another rank's: if they differ, set mismatch_seq of the group,
 * or of the group that it is an inner group of. tt__group_advance() fails the group then. */
void tt__on_word(tt_group *group, uint32_t seq, uint32_t word);

/* Compare the call that this work is, or is part of, with what the ranks of this host called. */
void tt__compare_calls(const tt_work *work);

/* Has any of the work's messages failed? The error names the peer. */
tt_status tt__check_messages(tt_work *work);

/* Check the ranks that the work waits for, and its deadline. To be called regularly; checks processes and the peers'
 * calls at most every TT__LOOK_MS. Publishes which rank this process waits for. The lock is released while other hosts
 * are asked. */
tt__look_result tt__look_closely(tt_work *waiter, tt_group **culprit);

/* Publish that this process no longer waits. */
void tt__note_going_on(tt__world *world);

#endif
