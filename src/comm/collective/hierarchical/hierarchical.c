/* What algorithms made of calls inside and between hosts share. */
#include "comm/collective/hierarchical/hierarchical.h"

#include "comm/reduce/reduce_tree.h"

bool tt__serves_hosts(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->native->local && group->native->cross && group->native->local->size > 1 &&
           group->native->cross->size > 1;
}

bool tt__serves_subtrees(const tt_group *group, const tt_call *call) {
    return tt__serves_hosts(group, call) && group->native->subtrees;
}

bool tt__serves_sums(const tt_group *group, const tt_call *call) {
    bool longer = tt__partial_dtype(call->dtype) != call->dtype;
    return tt__serves_subtrees(group, call) && !(longer && group->native->local->size == 2);
}

tt__next tt__leg_of(tt_work *work, tt_group *group, tt_dtype dtype, tt_call call) {
    call.dtype = dtype;
    call.timeout_ms = work->call.timeout_ms;
    call.file = work->call.file;
    call.line = work->call.line;
    return tt__work_call(work, group, &call);
}

tt__next tt__leg(tt_work *work, tt_group *group, tt_call call) {
    return tt__leg_of(work, group, work->call.dtype, call);
}
