/* Do all ranks have the same list? */
#ifndef TT_REDUCER_TEXT_AGREEMENT_H
#define TT_REDUCER_TEXT_AGREEMENT_H

#include "base/export.h"

#include <tutti/comm.h>

/* Collective. Compare `count` texts with the other ranks'; all ranks return the same. TT_ERR_MISMATCH names the first
 * text that differs from rank 0's, both versions, and the first rank that has another: "WHO: rank 1 has TEXT where rank
 * 0 has TEXT". Other errors: those of a collective. The group stays usable after a mismatch. */
TT__EXPORT tt_status tt__agree_on(tt_group *group, const char *who, const char *const *texts, size_t count);

#endif
