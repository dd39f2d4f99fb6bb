/* The order in which a rank turns to the others of its group, on shared memory: by what caches and memory they share (topology.h). Where it does not
 * matter, with one or two peers or little data, hwloc is not asked. */
#include "base/error.h"
#include "comm/group.h"
#include "comm/topology.h"

static void log_once(const tt_group *group, const tt__place *places) {
    static _Atomic bool logged;
    char text[900];
    if (atomic_exchange(&logged, true))
        return;
    tt__topology_text(places, group->size, text, sizeof text);
    tt__log(TT_LOG_INFO, "rank %d: of its host, %s", group->world->rank, text);
}

static void find_order(tt_group *group) {
    tt__place places[TT__MAX_WORLD];
    const tt__topology *topology = tt__topology_get();
    for (int r = 0; r < group->size; r++)
        places[r] = tt__topology_place(topology, group->world->peers[group->ranks[r]].control->cpu_mask);
    tt__topology_order(places, group->size, group->rank, group->turns);
    group->turns_by_place = true;
    if (topology->nodes)
        log_once(group, places);
}

const uint8_t *tt__turns(tt_group *group, size_t bytes) {
    enum { WORTH_BYTES = 256 << 10, WORTH_RANKS = 4 };
    if (!group->turns_by_place && bytes >= WORTH_BYTES && group->size >= WORTH_RANKS)
        find_order(group);
    else if (!group->turns_known && !group->turns_by_place)
        for (int i = 0; i < group->size; i++)
            group->turns[i] = (uint8_t)((group->rank + 1 + i) % group->size);
    group->turns_known = true;
    return group->turns;
}
