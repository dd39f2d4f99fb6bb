/* Agreement of all ranks on a list of texts: the options of a call that all make together.
 *
 * A joint call begins with such an agreement. A rank that refuses the call says so there, since the others would wait
 * for it. A failure after the agreement aborts the group, with its error. */
#ifndef TT_REDUCER_TEXT_AGREEMENT_H
#define TT_REDUCER_TEXT_AGREEMENT_H

#include "base/export.h"

#include <tutti/comm.h>

/* Collective. Compare `count` texts with the other ranks'; all ranks return the same. TT_ERR_MISMATCH names the first
 * text that differs from rank 0's, both versions, and the first rank that has another: "WHO: rank 1 has TEXT where rank
 * 0 has TEXT". Other errors: those of a collective. The group stays usable after a mismatch. */
TT__EXPORT tt_status tt__agree_on(tt_group *group, const char *who, const char *const *texts, size_t count);

/* Did a part that each rank did alone, between two collectives, succeed on all? `own`: how it ended here, its last
 * error; it is returned, and stays. On the other ranks TT_ERR_STATE names the first rank that failed. Collective; takes
 * no memory. */
TT__EXPORT tt_status tt__agree_on_success(tt_group *group, const char *who, tt_status own);

/* A joint call is one that all ranks of a group make together, and whose first collective is tt__agree_on(). Its body
 * stands between tt__joint_call_begin() and tt__joint_call_end(), on one thread, so that the others don't wait for a
 * rank on which the body fails. The body makes no agreement in another group before its first in this one. */
typedef struct tt__joint_call {
    tt_group *group; /* NULL: no other ranks, nothing is told */
    const char *who;
    uint64_t agreements; /* how many this thread had begun before the call */
} tt__joint_call;

TT__EXPORT tt__joint_call tt__joint_call_begin(tt_group *group, const char *who);

/* `status`: how the body ended on this rank. A failure before its first agreement: this joins the others in that
 * agreement, and they get TT_ERR_MISMATCH, "rank 1 has a call that it refuses: WHY". TT_ERR_MEMORY after it: the group
 * is aborted, and they get TT_ERR_ABORTED. Other failures after it come to all ranks alike, or are the group's own.
 * Returns `status`; the last error stays. May be called twice: also before something whose release is collective. */
TT__EXPORT tt_status tt__joint_call_end(const tt__joint_call *call, tt_status status);

/* Abort the group, in which others may wait for this rank, with this thread's last error, which stays. Does nothing if
 * the group has ended or has one rank. NULL is allowed. */
TT__EXPORT void tt__abort_with_error(tt_group *group);

#endif
