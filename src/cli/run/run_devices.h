/* Which accelerators this node has, and which of them a worker gets. */
#ifndef TT_CLI_RUN_DEVICES_H
#define TT_CLI_RUN_DEVICES_H

#include "elastic/job.h"

/* How many workers --nproc-per-node=gpu (xpu) means: one for each NVIDIA GPU that the driver gives to programs here
 * (run_gpus.h); without libcuda.so.1, for each that the kernel lists and CUDA_VISIBLE_DEVICES allows.
 * TT_ERR_UNSUPPORTED, which says what was found: there is none; TT_ERR_SYSTEM, TT_ERR_TIMEOUT the driver does not
 * work. */
tt_status tt__count_devices(const char *kind, int64_t *count);

/* Check that each worker can have a GPU of its own in CUDA_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES goes first), for
 * --virtual-local-rank; without the variables worker i gets number i. */
tt_status tt__check_visible_devices(const tt__job *job);

#endif
