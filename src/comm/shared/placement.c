#include "comm/shared/placement.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

/* The functions used of libhwloc. */
typedef struct hwloc_calls {
    void *library;
    int (*topology_init)(hwloc_topology_t *);
    int (*topology_load)(hwloc_topology_t);
    void (*topology_destroy)(hwloc_topology_t);
    int (*type_depth)(hwloc_topology_t, hwloc_obj_type_t);
    unsigned (*count_by_depth)(hwloc_topology_t, int);
    hwloc_obj_t (*obj_by_depth)(hwloc_topology_t, int, unsigned);
    int (*bitmap_isset)(hwloc_const_bitmap_t, unsigned);
} hwloc_calls;

static bool find_function(const hwloc_calls *calls, const char *name, void *function) {
    void *found = dlsym(calls->library, name);
    memcpy(function, &found, sizeof found); /* ISO C has no cast from object to function pointers */
    return found != NULL;
}

/* The environment names folders from which hwloc loads plug-ins (HWLOC_PLUGINS_PATH), so don't load it in a program
 * with more rights than its caller. */
static bool load_hwloc(hwloc_calls *calls) {
    if (getauxval(AT_SECURE))
        return false;
    calls->library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    return calls->library && find_function(calls, "hwloc_topology_init", &calls->topology_init) &&
           find_function(calls, "hwloc_topology_load", &calls->topology_load) &&
           find_function(calls, "hwloc_topology_destroy", &calls->topology_destroy) &&
           find_function(calls, "hwloc_get_type_depth", &calls->type_depth) &&
           find_function(calls, "hwloc_get_nbobjs_by_depth", &calls->count_by_depth) &&
           find_function(calls, "hwloc_get_obj_by_depth", &calls->obj_by_depth) &&
           find_function(calls, "hwloc_bitmap_isset", &calls->bitmap_isset);
}

/* Number each CPU by the object of this depth that it belongs to. Returns how many CPUs there are. */
static int number_cpus(const hwloc_calls *calls, hwloc_topology_t topology, int depth, int16_t *number_of) {
    unsigned count = calls->count_by_depth(topology, depth);
    for (unsigned i = 0; i < count && i < INT16_MAX; i++) {
        hwloc_obj_t object = calls->obj_by_depth(topology, depth, i);
        for (unsigned cpu = 0; object && object->cpuset && cpu < TT__TOPOLOGY_CPUS; cpu++)
            if (calls->bitmap_isset(object->cpuset, cpu))
                number_of[cpu] = (int16_t)i;
    }
    return (int)count;
}

static int number_type(const hwloc_calls *calls, hwloc_topology_t topology, hwloc_obj_type_t type, int16_t *number_of) {
    int depth = calls->type_depth(topology, type);
    return depth < 0 ? 0 : number_cpus(calls, topology, depth, number_of);
}

static int number_caches(const hwloc_calls *calls, hwloc_topology_t topology, int16_t *cache_of) {
    static const hwloc_obj_type_t caches[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE};
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        int depth = calls->type_depth(topology, caches[i]);
        if (depth >= 0)
            return number_cpus(calls, topology, depth, cache_of);
    }
    return 0;
}

bool tt__topology_read(tt__topology *topology) {
    hwloc_calls calls = {0};
    hwloc_topology_t machine = NULL;
    topology->nodes = topology->caches = 0;
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS; cpu++)
        topology->node_of[cpu] = topology->cache_of[cpu] = topology->core_of[cpu] = topology->package_of[cpu] =
            TT__NOWHERE;
    if (load_hwloc(&calls) && !calls.topology_init(&machine)) {
        if (!calls.topology_load(machine)) {
            topology->nodes = number_cpus(&calls, machine, HWLOC_TYPE_DEPTH_NUMANODE, topology->node_of);
            topology->caches = number_caches(&calls, machine, topology->cache_of);
            number_type(&calls, machine, HWLOC_OBJ_CORE, topology->core_of);
            number_type(&calls, machine, HWLOC_OBJ_PACKAGE, topology->package_of);
        }
        calls.topology_destroy(machine);
    }
    if (calls.library)
        dlclose(calls.library);
    return topology->nodes > 0;
}

static tt__topology this_machine;

static void read_this_machine(void) { tt__topology_read(&this_machine); }

const tt__topology *tt__topology_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_this_machine);
    return &this_machine;
}

tt__place tt__topology_place(const tt__topology *topology, const uint64_t *mask) {
    tt__place place = {TT__NOWHERE, TT__NOWHERE};
    bool first = true;
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS; cpu++) {
        if (!(mask[cpu / 64] >> (cpu % 64) & 1))
            continue;
        if (first)
            place = (tt__place){topology->node_of[cpu], topology->cache_of[cpu]};
        if (topology->node_of[cpu] != place.node)
            place.node = TT__NOWHERE;
        if (topology->cache_of[cpu] != place.cache)
            place.cache = TT__NOWHERE;
        first = false;
    }
    return place;
}

static bool comes_before(const tt__place *places, int a, int b) {
    if (places[a].node != places[b].node)
        return places[a].node < places[b].node;
    if (places[a].cache != places[b].cache)
        return places[a].cache < places[b].cache;
    return a < b;
}

/* Order ranks in a ring by node, cache and rank; each begins with the one behind itself. */
void tt__topology_order(const tt__place *places, int n, int me, uint8_t *order) {
    uint8_t ring[256] = {0};
    int at = 0;
    for (int r = 0; r < n; r++) { /* insertion sort */
        int i = r;
        for (; i > 0 && comes_before(places, r, ring[i - 1]); i--)
            ring[i] = ring[i - 1];
        ring[i] = (uint8_t)r;
    }
    while (ring[at] != me)
        at++;
    for (int i = 0; i < n; i++)
        order[i] = ring[(at + 1 + i) % n];
}

static bool same_place(const tt__place *a, const tt__place *b) { return a->node == b->node && a->cache == b->cache; }

/* "NUMA node 3", "several NUMA nodes". */
static void topology_name_of(const char *what, int number, char name[32]) {
    if (number == TT__NOWHERE)
        snprintf(name, 32, "several %ss", what);
    else
        snprintf(name, 32, "%s %d", what, number);
}

void tt__topology_text(const tt__place *places, int n, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0, last; r < n && used < size; r = last + 1) {
        char ranks[32], node[32], cache[32];
        for (last = r; last + 1 < n && same_place(&places[last + 1], &places[r]);)
            last++;
        snprintf(ranks, sizeof ranks, last > r ? "ranks %d-%d" : "rank %d", r, last);
        topology_name_of("NUMA node", places[r].node, node);
        topology_name_of("cache", places[r].cache, cache);
        used += (size_t)snprintf(text + used, size - used, "%s%s on %s, %s", r ? "; " : "", ranks, node, cache);
    }
}

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
    int whole = (int)(share + 1e-6); /* three thirds of a CPU add up to slightly less than one */
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
