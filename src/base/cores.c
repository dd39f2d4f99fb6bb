#include "base/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int affinity_cores(void) {
    /* The kernel refuses a mask smaller than its own, so larger ones are tried. */
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

/* Numbers in the first line of dir/name; "max", a missing file or number give -1. */
static void read_numbers(const char *dir, const char *name, long long out[2]) {
    char path[PATH_MAX + 64];
    out[0] = out[1] = -1;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fscanf(file, "%lld %lld", &out[0], &out[1]) < 1)
        out[0] = -1;
    fclose(file);
}

/* CPUs by the quota of one cgroup directory, rounded up; INT_MAX = no limit. */
static int quota_cores(const char *dir) {
    long long v2[2], quota[2], period[2];
    read_numbers(dir, "cpu.max", v2);
    if (v2[0] < 0) {
        read_numbers(dir, "cpu.cfs_quota_us", quota);
        read_numbers(dir, "cpu.cfs_period_us", period);
        v2[0] = quota[0];
        v2[1] = period[0];
    }
    if (v2[0] <= 0 || v2[1] <= 0)
        return INT_MAX;
    long long cores = (v2[0] + v2[1] - 1) / v2[1];
    return cores < 1 ? 1 : cores > INT_MAX ? INT_MAX : (int)cores;
}

/* The least quota of root/path and of the directories above it, down to `root`. */
static int least_quota(const char *root, const char *path) {
    char dir[PATH_MAX];
    int least = INT_MAX, n = snprintf(dir, sizeof dir, "%s%s", root, path);
    size_t root_length = strlen(root);
    if (n < 0 || (size_t)n >= sizeof dir)
        return quota_cores(root);
    for (;;) {
        int cores = quota_cores(dir);
        if (cores < least)
            least = cores;
        char *slash = strrchr(dir, '/');
        if (!slash || slash < dir + root_length)
            return least;
        *slash = '\0';
    }
}

/* Does a comma list of controllers ("cpu,cpuacct") hold "cpu"? */
static int has_cpu(const char *list) {
    for (const char *c = list; c; c = strchr(c, ',')) {
        c += *c == ',';
        if (!strncmp(c, "cpu", 3) && (c[3] == ',' || !c[3]))
            return 1;
    }
    return 0;
}

/* Lines of /proc/self/cgroup are "0::/path" (v2) and "4:cpu,cpuacct:/path" (v1). */
static int cgroup_cores(void) {
    char line[PATH_MAX];
    int least = INT_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return least;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        const char *root = !*controllers ? "/sys/fs/cgroup" : has_cpu(controllers) ? "/sys/fs/cgroup/cpu" : NULL;
        int cores = root ? least_quota(root, path) : INT_MAX;
        if (cores < least)
            least = cores;
    }
    fclose(file);
    return least;
}

int tt__cores(void) {
    int affinity = affinity_cores(), quota = cgroup_cores();
    return quota < affinity ? quota : affinity;
}
