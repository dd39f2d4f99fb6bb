/* The GPUs that NVIDIA's driver gives to programs here, and which CPUs are near them. */
#ifndef TT_CLI_RUN_GPUS_H
#define TT_CLI_RUN_GPUS_H

#include "cli/cli.h"

#include <sched.h>

enum { TT__GPUS_MAX = 64 };

typedef struct tt__gpus {
    bool driver; /* is there one? */
    int count;
    char bus_id[TT__GPUS_MAX][24]; /* "0000:3b:00.0", in the order of CUDA's numbers */
} tt__gpus;

/* Ask the driver, once, in a child: CUDA can't be used in the children of a process that has begun it. Errors:
 * TT_ERR_SYSTEM, TT_ERR_TIMEOUT the driver does not work. */
tt_status tt__gpus_find(tt__gpus *gpus);

/* The NUMA node of a GPU and its CPUs, as the system's files say: node 0 where they know of no nodes.
 * TT_ERR_UNSUPPORTED: they don't say it. */
tt_status tt__gpu_node(const char *bus_id, int *node, cpu_set_t *cpus);

#endif
