/* How many CPUs this process may really use. */
#ifndef TT_BASE_CORES_H
#define TT_BASE_CORES_H

#include "base/export.h"

/* Count the CPUs of the affinity mask, or fewer where a cgroup (v1 or v2) of this process or of a parent limits its
 * time: a quota of 1.5 CPUs counts as 2. At least 1. Reads /proc and /sys at each call: keep the result.
 * Thread-safe. */
TT__EXPORT int tt__cores(void);

/* Return how many of its CPUs are left to this process if it shares them fairly with the job's other ranks; 0 until
 * comm sets it when it joins. Thread-safe. */
TT__EXPORT int tt__cpu_share(void);
void tt__set_cpu_share(int cpus);

#endif
