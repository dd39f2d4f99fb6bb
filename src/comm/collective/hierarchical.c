/* Who is where, for algorithms made of calls inside and between hosts. */
#include "comm/collective/hierarchical.h"

bool tt__has_hosts(const tt_group *group) {
    return group->local && group->cross && group->local->size > 1 && group->cross->size > 1;
}

static int host_number(const tt_group *group, int r) { return group->world->peers[group->ranks[r]].host; }

int tt__local_of(const tt_group *group, int r) {
    int before = 0;
    for (int i = 0; i < r; i++)
        before += host_number(group, i) == host_number(group, r);
    return before;
}

int tt__host_of(const tt_group *group, int r) {
    for (int h = 0; h < group->cross->size; h++)
        if (group->world->peers[group->cross->ranks[h]].host == host_number(group, r))
            return h;
    return 0;
}

bool tt__has_host_blocks(const tt_group *group) {
    if (!tt__has_hosts(group))
        return false;
    for (int r = 0; r < group->size; r++)
        if (tt__host_of(group, r) != r / group->local->size)
            return false;
    return true;
}

tt__next tt__leg(tt_work *work, tt_group *group, tt_call call) {
    call.dtype = work->call.dtype;
    call.timeout_ms = work->call.timeout_ms;
    call.file = work->call.file;
    call.line = work->call.line;
    if (tt__work_begin_child(work, group, &call))
        return TT__NEXT_FAILED;
    return tt__work_wait_child(work);
}
