/* The control groups that limit this process. */
#ifndef TT_BASE_CGROUP_H
#define TT_BASE_CGROUP_H

#include <stddef.h>

/* Call `visit` for each directory that may limit `controller` ("cpu", "memory") for this process: its cgroup's (v1 or
 * v2) and those above. `root` stands before /proc and /sys: "" but in tests. Thread-safe. */
void tt__cgroup_walk(const char *root, const char *controller, void (*visit)(const char *dir, void *user), void *user);

/* Numbers in the first line of dir/name; "max", a missing file or number give -1. */
void tt__cgroup_numbers(const char *dir, const char *name, long long out[2]);

/* Bytes that this process may still take before its cgroup's limit is reached, or that of one above; SIZE_MAX: there is
 * none. Cached files that the kernel would drop count as free. */
size_t tt__cgroup_memory_left(const char *root);

#endif
