/* How threads of OpenMP wait for each other. libgomp's spin for milliseconds, and take the CPU from those that they
 * wait for where others use it, too: a step on 2 threads beside a busy process took 5 times as long as on one. After
 * so few spins, some 50 us, they sleep: 1.2 times as long as on one thread. */
#ifndef TT_BASE_OPENMP_SPINS_H
#define TT_BASE_OPENMP_SPINS_H

#include <stdbool.h>
#include <stdlib.h>

#define TT__OPENMP_SPINS_VARIABLE "GOMP_SPINCOUNT" /* libgomp reads it when it is loaded */
#define TT__OPENMP_SPINS "4000"

/* Has the user said how they wait? */
static inline bool tt__openmp_waits_as_told(void) {
    const char *policy = getenv("OMP_WAIT_POLICY"), *spins = getenv(TT__OPENMP_SPINS_VARIABLE);
    return (policy && *policy) || (spins && *spins);
}

#endif
