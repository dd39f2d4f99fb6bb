/* Building blocks of machines (work.h). */
#ifndef TT_COMM_MACHINE_H
#define TT_COMM_MACHINE_H

#include "comm/native_group.h"

#define TT__STATE(type, work) ((type *)(void *)(work)->state)

/* ---- on messages */

/* Make room for n messages, while none is under way. TT_ERR_MEMORY. */
tt_status tt__work_messages(tt_work *work, size_t n);

/* Post a message to or from a rank of the group. `slot`: index into work->messages. The key is the work's seq and word;
 * `step` is the algorithm's own numbering, the same on both sides and unique per pair and direction within the call. */
void tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes);
void tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes);

/* What next() returns to wait for messages. */
tt__next tt__work_wait_messages(tt_work *work);

/* ---- on inner groups. Return this from next(). */

tt__next tt__work_call(tt_work *work, tt_group *group, const tt_call *call);

/* ---- on shared memory. Return these from next(): ranks next..end-1 have finished `step`, or all have; the last of
 * them: this rank's part is done with it. */

tt__next tt__work_wait_ranks(tt_work *work, uint32_t step, int next, int end);
tt__next tt__work_wait_steps(tt_work *work, uint32_t step);
tt__next tt__work_wait_last(tt_work *work, uint32_t step);

#endif
