#include "cli/run/run_bind.h"

#include "base/error.h"
#include "base/saved_error.h"
#include "cli/run/run_devices.h"
#include "comm/shared/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct binding {
    const char *flag, *name;
    bool share; /* a worker has a share of such parts for itself; else one part, which it may share with others */
    const char *part;
    const int16_t *(*parts)(const tt__topology *topology);
} binding;

static const int16_t *cores(const tt__topology *topology) { return topology->core_of; }
static const int16_t *numa_nodes(const tt__topology *topology) { return topology->node_of; }
static const int16_t *packages(const tt__topology *topology) { return topology->package_of; }
static const int16_t *caches(const tt__topology *topology) { return topology->cache_of; }

static const binding bindings[] = {
    {"--bind", "core", true, "core", cores},
    {"--bind", "numa", false, "NUMA node", numa_nodes},
    {"--numa-binding", "node", false, "NUMA node", numa_nodes},
    {"--numa-binding", "exclusive", true, "core", cores},
    {"--numa-binding", "socket", false, "processor", packages},
    {"--numa-binding", "core-complex", false, "cache", caches},
};

/* Find what the flags ask for; *out NULL: nothing. */
static tt_status find_binding(const binding **out, const tt__run_flags *flags) {
    const char *flag = flags->given.bind ? "--bind" : "--numa-binding";
    const char *name = flags->given.bind ? flags->bind : flags->numa_binding;
    *out = NULL;
    if (flags->given.bind && flags->given.numa_binding)
        return tt__fail(TT_ERR_INVALID, "--bind and --numa-binding both say where workers run: give one of them");
    for (size_t i = 0; name && i < sizeof bindings / sizeof *bindings; i++)
        if (!strcmp(bindings[i].flag, flag) && !strcmp(bindings[i].name, name))
            *out = &bindings[i];
    return TT_OK;
}

/* List the numbers of the parts that have a CPU in `usable`, in the order of their first: neighbours are neighbours. */
static int list_parts(const cpu_set_t *usable, const int16_t *part_of, int16_t *list) {
    int n = 0;
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++) {
        bool known = part_of[cpu] == TT__NOWHERE || !CPU_ISSET(cpu, usable);
        for (int i = 0; i < n && !known; i++)
            known = list[i] == part_of[cpu];
        if (!known)
            list[n++] = part_of[cpu];
    }
    /* By hwloc's numbers, which follow the machine's structure; the system's numbers of CPUs need not. */
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && list[k - 1] > list[k]; k--) {
            int16_t swapped = list[k];
            list[k] = list[k - 1];
            list[k - 1] = swapped;
        }
    return n;
}

static void add_part(cpu_set_t *cpus, const cpu_set_t *usable, const int16_t *part_of, int16_t part) {
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, usable) && part_of[cpu] == part)
            CPU_SET(cpu, cpus);
}

/* Worker i of n: an equal share of the parts where there is one for each, else one part, in blocks. */
static void divide_parts(cpu_set_t *cpus, int workers, const cpu_set_t *usable, const binding *b,
                         const int16_t *part_of) {
    int16_t list[TT__TOPOLOGY_CPUS];
    int n = list_parts(usable, part_of, list);
    for (int i = 0; i < workers; i++) {
        int from = (int)((int64_t)i * n / workers), to = (int)((int64_t)(i + 1) * n / workers);
        CPU_ZERO(&cpus[i]);
        if (!b->share || to <= from)
            to = from + 1;
        for (int k = from; k < to; k++)
            add_part(&cpus[i], usable, part_of, list[k]);
    }
}

/* ---- by GPUs ---- */

/* What is near a GPU: the CPUs of its NUMA node, or with --numa-binding=socket those of that node's processor. */
static tt_status find_near(cpu_set_t *near, int *node, const char *bus_id, const cpu_set_t *usable, const binding *b) {
    cpu_set_t of_node;
    TT__TRY(tt__gpu_node(bus_id, node, &of_node));
    CPU_AND(near, &of_node, usable);
    for (int cpu = 0; b->parts == packages && cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &of_node) && CPU_ISSET(cpu, usable))
            add_part(near, usable, packages(tt__topology_get()), packages(tt__topology_get())[cpu]);
    if (CPU_COUNT(near))
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED, "GPU %s is at NUMA node %d, of whose CPUs this process may use none", bus_id,
                    *node);
}

/* Worker i goes where GPU i is, as torchrun's do; workers whose GPUs share a node divide its parts. */
static tt_status bind_to_gpus(cpu_set_t *cpus, int workers, const tt__gpus *gpus, const cpu_set_t *usable,
                              const binding *b, const int16_t *part_of) {
    cpu_set_t near[TT__GPUS_MAX], own[TT__GPUS_MAX];
    int node[TT__GPUS_MAX];
    for (int i = 0; i < workers; i++)
        TT__TRY(find_near(&near[i], &node[i], gpus->bus_id[i], usable, b));
    for (int i = 0; i < workers; i++) {
        int n = 0, place = 0;
        for (int k = 0; k < workers; k++) {
            place += k < i && node[k] == node[i];
            n += node[k] == node[i];
        }
        if (b->share || b->parts == caches)
            divide_parts(own, n, &near[i], b, part_of);
        cpus[i] = b->share || b->parts == caches ? own[place] : near[i];
    }
    return TT_OK;
}

/* Does worker i have a GPU i? Where a driver does not work, nobody has one. */
static bool goes_by_gpus(tt__gpus *gpus, int workers, const binding *b) {
    tt__saved_error before;
    if (strcmp(b->flag, "--numa-binding") != 0)
        return false;
    tt__error_save(&before);
    bool found = !tt__gpus_find(gpus) && workers <= gpus->count;
    tt__error_restore(&before);
    return found;
}

/* ---- */

static bool all_known(const cpu_set_t *usable, const int16_t *part_of) {
    bool known = true;
    for (int cpu = 0; known && cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++)
        known = !CPU_ISSET(cpu, usable) || part_of[cpu] != TT__NOWHERE;
    return known;
}

tt_status tt__run_bind(tt__job *job, cpu_set_t **cpus, const tt__run_flags *flags) {
    const binding *b;
    tt__gpus gpus;
    cpu_set_t usable;
    TT__TRY(find_binding(&b, flags));
    if (!b)
        return TT_OK;
    bool by_gpus = goes_by_gpus(&gpus, job->workers, b);
    const int16_t *part_of = b->parts(tt__topology_get());
    /* Which CPUs a GPU's node has is in the system's files. */
    if (sched_getaffinity(0, sizeof usable, &usable) ||
        (!all_known(&usable, part_of) && !(by_gpus && b->parts == numa_nodes)))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s %s: it is not known to which %s each CPU belongs (hwloc, libhwloc.so.15, would tell)",
                        b->flag, b->name, b->part);
    *cpus = calloc((size_t)job->workers, sizeof **cpus);
    if (!*cpus)
        return tt__fail(TT_ERR_MEMORY, "no memory for the CPUs of %d workers", job->workers);
    if (!by_gpus)
        divide_parts(*cpus, job->workers, &usable, b, part_of);
    else if (bind_to_gpus(*cpus, job->workers, &gpus, &usable, b, part_of))
        return tt__fail_prefix("%s %s", b->flag, b->name);
    job->cpus = *cpus;
    return TT_OK;
}

/* "0-3,8" */
static void cpus_text(const cpu_set_t *cpus, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int cpu = 0, last; cpu < CPU_SETSIZE && used + 32 < size; cpu = last + 1) {
        last = cpu;
        if (!CPU_ISSET(cpu, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        used += (size_t)snprintf(text + used, size - used, last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "", cpu, last);
    }
}

void tt__run_bind_tell(const tt__job *job) {
    char line[1024], own[256];
    size_t used = 0;
    for (int i = 0; job->cpus && i < job->workers; i++) {
        cpus_text(&job->cpus[i], own, sizeof own);
        if (used + sizeof own + 64 > sizeof line) {
            snprintf(line + used, sizeof line - used, ", ...");
            break;
        }
        used += (size_t)snprintf(line + used, sizeof line - used, "%slocal rank %d on CPU %s", i ? ", " : "", i, own);
    }
    if (job->cpus)
        tt__cli_note("run", "%s", line);
}
