/* Do all ranks have the same list? */
#ifndef TT_REDUCER_TEXT_AGREEMENT_H
#define TT_REDUCER_TEXT_AGREEMENT_H

#include "base/export.h"

#include <tutti/comm.h>

/* Collective. Compare `count` texts with the other ranks'; all ranks return the same. TT_ERR_MISMATCH names the first
 * text that differs from rank 0's, both versions, and the first rank that has another: "WHO: rank 1 has TEXT where rank
 * 0 has TEXT". Other errors: those of a collective. The group stays usable after a mismatch. */
TT__EXPORT tt_status tt__agree_on(tt_group *group, const char *who, const char *const *texts, size_t count);

/* What stands around a call that all ranks of a group make together, and that begins with tt__agree_on(): where it
 * fails on this rank alone, the others are not kept waiting. */
typedef struct tt__joint_call {
    tt_group *group; /* NULL: there is none, and nobody to tell */
    const char *who;
    uint64_t agreements; /* of this thread, before */
} tt__joint_call;

TT__EXPORT tt__joint_call tt__joint_call_begin(tt_group *group, const char *who);

/* `status`: how the call ended here. A failure before its first agreement is told by that: the others get
 * TT_ERR_MISMATCH, "rank 1 has a call that it refuses: WHY". Missing memory behind it ends the group: they get
 * TT_ERR_ABORTED. Other failures behind it are all ranks', or the group's. Returns `status`; the last error stays. */
TT__EXPORT tt_status tt__joint_call_end(const tt__joint_call *call, tt_status status);

/* End the group, in which others may wait for this rank, with this thread's last error as the reason; that stays. NULL
 * is allowed. */
TT__EXPORT void tt__abort_with_error(tt_group *group);

#endif
