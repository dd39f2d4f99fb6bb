/* Ranks that called different things, and messages that failed. The lock is held, and given back while other hosts are
 * asked.
 *
 * On shared memory all ranks' words are compared before any peer's memory is touched. On messages the words travel in
 * the keys; each rank also remembers those of its last calls, so a message that nobody receives shows a difference,
 * too. */
#ifndef TT_COMM_WATCH_MISMATCH_H
#define TT_COMM_WATCH_MISMATCH_H

#include "comm/native_group.h"

/* Record TT_ERR_MISMATCH with what each rank called: the ranks differ in call `seq`, or shortly before. Not of an inner
 * group. */
tt_status tt__fail_differing(tt_group *group, uint32_t seq);

/* Record TT_ERR_MISMATCH likewise: the words of the work's call, which all ranks have published, differ. */
tt_status tt__fail_words(tt_work *work);

/* Note that the work, on messages, begins: remember its word, and compare it with what others have sent for it
 * already. */
void tt__note_begun(tt_work *work);

/* Compare this rank's call number `seq` with the word of another rank's: if they differ, set mismatch_seq of the group,
 * or of the group that it is an inner group of. tt__group_advance() fails the group then. */
void tt__on_word(tt_group *group, uint32_t seq, uint32_t word);

/* Compare the call that this work is, or is part of, with what the ranks of this host called. */
void tt__compare_calls(const tt_work *work);

/* Did those of the work's messages that are done go well? The error names the peer. */
tt_status tt__check_messages(tt_work *work);

#endif
