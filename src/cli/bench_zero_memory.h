/* The memory that a wrapped module has on this rank. */
#ifndef TT_CLI_BENCH_ZERO_MEMORY_H
#define TT_CLI_BENCH_ZERO_MEMORY_H

#include <tutti/tutti.h>

typedef struct tt__bench_memory {
    double params_mb; /* parameters: whole ones, slices, and the places where units are gathered */
    double grads_mb;  /* gradients likewise, in buckets and of slices */
    double state_mb;  /* what the tensors of the optimizer's state have */
} tt__bench_memory;

/* Measure it, between two steps: the pages that are there, as the kernel says (mincore). `wrapper` is tt_ddp()'s or
 * tt_fully_shard()'s, `optimizer` one of its parameters, sharded or not. */
tt_status tt__bench_zero_memory(tt_module *wrapper, tt_optimizer *optimizer, tt__bench_memory *out);

#endif
