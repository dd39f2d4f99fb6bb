/* How many CPUs and how much memory this process may use: its affinity mask, and the control groups (cgroups) that
 * limit it. */
#ifndef TT_BASE_LIMITS_H
#define TT_BASE_LIMITS_H

#include "base/export.h"

#include <stddef.h>

/* Call `visit` for each directory that may limit `controller` ("cpu", "memory") for this process: that of its cgroup
 * (v1 or v2), then those above. `root`, here and below, is put before /proc and /sys: "" except in tests.
 * Thread-safe. */
void tt__cgroup_walk(const char *root, const char *controller, void (*visit)(const char *dir, void *user), void *user);

/* Read the two numbers in the first line of dir/name; "max", a missing file and a missing number give -1. */
void tt__cgroup_numbers(const char *dir, const char *name, long long out[2]);

/* Return how many bytes this process may still take before it reaches a limit of its cgroup or of one above; SIZE_MAX:
 * there is no limit. Cached files that the kernel would drop count as free. */
size_t tt__cgroup_memory_left(const char *root);

/* Return the tightest limit on memory, in bytes; SIZE_MAX: there is none. */
size_t tt__cgroup_memory_limit(const char *root);

/* Return how many processes of this process's cgroup the kernel has killed because memory ran out. */
long long tt__cgroup_memory_kills(const char *root);

/* Count the CPUs of the affinity mask, or fewer if a cgroup (v1 or v2) of this process or one above limits the time: a
 * quota of 1.5 CPUs counts as 2. At least 1. Reads /proc and /sys at each call: keep the result. Thread-safe. */
TT__EXPORT int tt__cores(void);

/* Return how many CPUs are this process's fair share, beside the job's other ranks on them; 0 until it is set, which
 * comm does when it joins. Thread-safe. */
TT__EXPORT int tt__cpu_share(void);
void tt__set_cpu_share(int cpus);

#endif
