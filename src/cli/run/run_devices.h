/* Which accelerators this node has, and which of them a worker gets. */
#ifndef TT_CLI_RUN_DEVICES_H
#define TT_CLI_RUN_DEVICES_H

#include "launch/job.h"

#include <sched.h>

/* How many workers --nproc-per-node=gpu (xpu) means: one for each NVIDIA GPU that the driver gives to programs here
 * (tt__gpus_find()); without libcuda.so.1, for each that the kernel lists and CUDA_VISIBLE_DEVICES allows.
 * TT_ERR_UNSUPPORTED, which says what was found: there is none; TT_ERR_SYSTEM, TT_ERR_TIMEOUT the driver does not
 * work. */
tt_status tt__count_devices(const char *kind, int64_t *count);

/* Check that each worker can have a GPU of its own in CUDA_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES goes first), for
 * --virtual-local-rank; without the variables worker i gets number i. */
tt_status tt__check_visible_devices(const tt__job *job);

/* ---- the GPUs that NVIDIA's driver gives to programs here, and which CPUs are near them ---- */

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
