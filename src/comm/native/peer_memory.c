#include "comm/native/peer_memory.h"

#include "comm/native_group.h"

int64_t tt__symmetric_offset(const tt_group *group, const void *ptr) {
    const tt__native *native = group->native;
    if (!native || !native->bases[group->rank])
        return -1;
    for (const tt__allocation *a = group->allocations; a; a = a->next)
        if (a->at == ptr)
            return a->extent ? (const unsigned char *)ptr - native->bases[group->rank] : -1;
    return -1;
}

const void *tt__peer_memory(const tt_group *group, int peer, int64_t offset) {
    const tt__native *native = group->native;
    if (!native || offset < 0 || !native->bases[peer])
        return NULL;
    return native->bases[peer] + offset;
}
