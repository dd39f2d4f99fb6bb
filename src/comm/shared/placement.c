#include "comm/shared/placement.h"

#include "base/error.h"
#include "comm/shared/topology.h"

static void log_once(const tt_group *group, const tt__place *places) {
    static _Atomic bool logged;
    char text[900];
    if (atomic_exchange(&logged, true))
        return;
    tt__topology_text(places, group->size, text, sizeof text);
    tt__log(TT_LOG_INFO, "rank %d: of its host, %s", group->native->world->rank, text);
}

static void find_order(tt_group *group) {
    tt__place places[TT__MAX_HOST_RANKS];
    const tt__topology *topology = tt__topology_get();
    for (int r = 0; r < group->size; r++)
        places[r] = tt__topology_place(topology, group->native->world->peers[group->ranks[r]].control->cpu_mask);
    tt__topology_order(places, group->size, group->rank, group->native->order);
    group->native->order_by_place = true;
    if (topology->nodes)
        log_once(group, places);
}

const uint8_t *tt__peer_order(tt_group *group, size_t bytes) {
    enum { WORTH_BYTES = 256 << 10, WORTH_RANKS = 4 };
    if (!group->native->order_by_place && bytes >= WORTH_BYTES && group->size >= WORTH_RANKS)
        find_order(group);
    else if (!group->native->order_known && !group->native->order_by_place)
        for (int i = 0; i < group->size; i++)
            group->native->order[i] = (uint8_t)((group->rank + 1 + i) % group->size);
    group->native->order_known = true;
    return group->native->order;
}

static bool may_use(const uint64_t *mask, int cpu) { return mask[cpu / 64] >> cpu % 64 & 1; }

int tt__cpu_share_of(const uint64_t *const *masks, int ranks, int me, int strangers, uint32_t quota) {
    double share = 0;
    uint32_t own = 0;
    for (int cpu = 0; cpu < 64 * TT__CPU_MASK_WORDS; cpu++) {
        int users = strangers;
        if (!may_use(masks[me], cpu))
            continue;
        for (int r = 0; r < ranks; r++)
            users += may_use(masks[r], cpu);
        share += 1.0 / users;
        own++;
    }
    double limit = (double)quota / (ranks + strangers);
    if (quota < own || !own)
        share = own && share < limit ? share : limit;
    int whole = (int)(share + 1e-6); /* three thirds are not quite one */
    return whole < 1 ? 1 : whole;
}

bool tt__ranks_fit_cpus(const tt_group *group) {
    uint64_t all[TT__CPU_MASK_WORDS] = {0};
    uint32_t least_quota = UINT32_MAX, cpus = 0, ranks = 0;
    for (int r = 0; r < group->size; r++) {
        const tt__control *control = group->native->world->peers[group->ranks[r]].control;
        uint32_t own = 0;
        if (!control)
            continue;
        ranks++;
        for (int w = 0; w < TT__CPU_MASK_WORDS; w++) {
            all[w] |= control->cpu_mask[w];
            own += (uint32_t)__builtin_popcountll(control->cpu_mask[w]);
        }
        if (control->cpu_quota < own && control->cpu_quota < least_quota)
            least_quota = control->cpu_quota;
    }
    for (int w = 0; w < TT__CPU_MASK_WORDS; w++)
        cpus += (uint32_t)__builtin_popcountll(all[w]);
    return ranks <= (cpus < least_quota ? cpus : least_quota);
}
