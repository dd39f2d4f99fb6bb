#include "base/machine/cores.h"

#include "base/process/cgroup.h"

#include <limits.h>
#include <sched.h>
#include <unistd.h>

static int affinity_cores(void) {
    /* The kernel refuses a mask smaller than its own: try larger ones. */
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t size = CPU_ALLOC_SIZE(cpus);
        int n = sched_getaffinity(0, size, set) ? 0 : CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (n)
            return n;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Return the CPUs by the quota of one cgroup directory, rounded up; INT_MAX = no limit. */
static int quota_cores(const char *dir) {
    long long v2[2], quota[2], period[2];
    tt__cgroup_numbers(dir, "cpu.max", v2);
    if (v2[0] < 0) {
        tt__cgroup_numbers(dir, "cpu.cfs_quota_us", quota);
        tt__cgroup_numbers(dir, "cpu.cfs_period_us", period);
        v2[0] = quota[0];
        v2[1] = period[0];
    }
    if (v2[0] <= 0 || v2[1] <= 0)
        return INT_MAX;
    long long cores = (v2[0] + v2[1] - 1) / v2[1];
    return cores < 1 ? 1 : cores > INT_MAX ? INT_MAX : (int)cores;
}

static void take_least(const char *dir, void *user) {
    int cores = quota_cores(dir), *least = user;
    if (cores < *least)
        *least = cores;
}

int tt__cores(void) {
    int cores = affinity_cores();
    tt__cgroup_walk("", "cpu", take_least, &cores);
    return cores;
}

static _Atomic int cpu_share;

int tt__cpu_share(void) { return cpu_share; }

void tt__set_cpu_share(int cpus) { cpu_share = cpus; }
