/* The control groups that limit this process. */
#ifndef TT_BASE_CGROUP_H
#define TT_BASE_CGROUP_H

#include <stddef.h>

/* Call `visit` for each directory that may limit `controller` ("cpu", "memory") for this process: its cgroup's (v1
 * or v2) and those above. `root` is put before /proc and /sys: "" except in tests. Thread-safe. */
void tt__cgroup_walk(const char *root, const char *controller, void (*visit)(const char *dir, void *user), void *user);

/* Read the two numbers in the first line of dir/name; "max", a missing file and a missing number give -1. */
void tt__cgroup_numbers(const char *dir, const char *name, long long out[2]);

/* Return how many bytes this process may still take before a limit of its cgroup or of one above is reached;
 * SIZE_MAX: there is none. Cached files that the kernel would drop count as free. */
size_t tt__cgroup_memory_left(const char *root);

/* How many processes of this process's cgroup the kernel has killed because memory ran out; and the tightest limit on
 * memory, SIZE_MAX: there is none. */
long long tt__cgroup_memory_kills(const char *root);
size_t tt__cgroup_memory_limit(const char *root);

#endif
