/* Ranks that called different things: who called what. And messages that failed. The lock is held, and given back while
 * other hosts are asked. */
#ifndef TT_COMM_WATCH_MISMATCH_H
#define TT_COMM_WATCH_MISMATCH_H

#include "comm/native_group.h"

/* The ranks differ in call `seq`, or shortly before: TT_ERR_MISMATCH, recorded: who called what. Not of an inner
 * group. */
tt_status tt__fail_differing(tt_group *group, uint32_t seq);

/* The words of the work's call, which all ranks have published, differ: TT_ERR_MISMATCH, recorded likewise. */
tt_status tt__fail_words(tt_work *work);

/* The work, on messages, begins: remember its word, and compare it with what others have sent for it already. */
void tt__note_begun(tt_work *work);

/* A rank has called something with this word as number `seq`: if this rank called something else, mismatch_seq tells,
 * of the group or of the one that it is an inner group of. tt__group_advance() fails the group then. */
void tt__on_word(tt_group *group, uint32_t seq, uint32_t word);

/* Compare the call that this work is, or is part of, with what the ranks of this host called. */
void tt__compare_calls(const tt_work *work);

/* Did those of the work's messages that are done go well? The error names the peer. */
tt_status tt__check_messages(tt_work *work);

#endif
