#include "base/process/limits.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tt__cgroup_numbers(const char *dir, const char *name, long long out[2]) {
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

/* Visit top/path and the directories above it, up to `top`. */
static void walk_up(const char *top, const char *path, void (*visit)(const char *dir, void *user), void *user) {
    char dir[2 * PATH_MAX];
    size_t top_length = strlen(top);
    snprintf(dir, sizeof dir, "%s%s", top, path);
    for (;;) {
        visit(dir, user);
        char *slash = strrchr(dir, '/');
        if (!slash || slash < dir + top_length)
            return;
        *slash = '\0';
    }
}

/* Does a comma list of controllers ("cpu,cpuacct") hold this one? */
static bool has_controller(const char *list, const char *controller) {
    size_t length = strlen(controller);
    for (const char *c = list; c; c = strchr(c, ',')) {
        c += *c == ',';
        if (!strncmp(c, controller, length) && (c[length] == ',' || !c[length]))
            return true;
    }
    return false;
}

/* Lines of /proc/self/cgroup are "0::/path" (v2) and "4:cpu,cpuacct:/path" (v1). */
void tt__cgroup_walk(const char *root, const char *controller, void (*visit)(const char *dir, void *user), void *user) {
    char line[PATH_MAX], top[PATH_MAX];
    snprintf(top, sizeof top, "%s/proc/self/cgroup", root);
    FILE *file = fopen(top, "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        if (*controllers && !has_controller(controllers, controller))
            continue;
        snprintf(top, sizeof top, "%s/sys/fs/cgroup%s%s", root, *controllers ? "/" : "",
                 *controllers ? controller : "");
        walk_up(top, path, visit, user);
    }
    fclose(file);
}

/* Read the number of a line "name number" of dir/file; 0 if there is none. */
static long long named_number(const char *dir, const char *file_name, const char *name) {
    char path[2 * PATH_MAX + 32], line[128], word[64];
    long long value, found = 0;
    snprintf(path, sizeof path, "%s/%s", dir, file_name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %lld", word, &value) == 2 && !strcmp(word, name))
            found = value;
    fclose(file);
    return found;
}

static void take_least_memory(const char *dir, void *user) {
    size_t *least = user;
    long long limit[2], used[2], cached;
    tt__cgroup_numbers(dir, "memory.max", limit);
    tt__cgroup_numbers(dir, "memory.current", used);
    cached = named_number(dir, "memory.stat", "inactive_file");
    if (limit[0] < 0 && used[0] < 0) {
        tt__cgroup_numbers(dir, "memory.limit_in_bytes", limit);
        tt__cgroup_numbers(dir, "memory.usage_in_bytes", used);
        cached = named_number(dir, "memory.stat", "total_inactive_file");
    }
    if (limit[0] < 0 || used[0] < 0)
        return;
    long long taken = used[0] > cached ? used[0] - cached : 0;
    size_t left = limit[0] > taken ? (size_t)(limit[0] - taken) : 0;
    if (left < *least)
        *least = left;
}

size_t tt__cgroup_memory_left(const char *root) {
    size_t left = SIZE_MAX;
    tt__cgroup_walk(root, "memory", take_least_memory, &left);
    return left;
}

/* Only the first directory counts, the process's own. Those above count its kills, too, and those of others. */
static void take_own_kills(const char *dir, void *user) {
    long long *kills = user;
    if (*kills >= 0)
        return;
    *kills = named_number(dir, "memory.events", "oom_kill") + named_number(dir, "memory.oom_control", "oom_kill");
}

long long tt__cgroup_memory_kills(const char *root) {
    long long kills = -1;
    tt__cgroup_walk(root, "memory", take_own_kills, &kills);
    return kills < 0 ? 0 : kills;
}

static void take_least_limit(const char *dir, void *user) {
    const long long none = LLONG_MAX / 2; /* version 1 shows "no limit" as a number above this */
    size_t *least = user;
    long long limit[2];
    tt__cgroup_numbers(dir, "memory.max", limit);
    if (limit[0] < 0)
        tt__cgroup_numbers(dir, "memory.limit_in_bytes", limit);
    if (limit[0] >= 0 && limit[0] < none && (size_t)limit[0] < *least)
        *least = (size_t)limit[0];
}

size_t tt__cgroup_memory_limit(const char *root) {
    size_t least = SIZE_MAX;
    tt__cgroup_walk(root, "memory", take_least_limit, &least);
    return least;
}

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

/* Return the CPUs that the quota of one cgroup directory allows, rounded up; INT_MAX: no limit. */
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
