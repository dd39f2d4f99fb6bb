/* barrier: an agreement on a call that moves nothing. */
#include "base/error.h"
#include "comm/collective/collective.h"

tt_status tt__barrier_at(tt_group *group, const char *file, int line) {
    bool symmetric;
    TT__TRY(tt__group_usable(group));
    TT__TRY(tt__work_drain(group));
    return tt__meet(group, &(tt__call){.op = TT__OP_BARRIER, .file = file, .line = line}, NULL, 0, NULL, &symmetric);
}
