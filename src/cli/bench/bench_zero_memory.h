/* What a wrapped module and its optimizer occupy on this rank, in MiB. */
#ifndef TT_CLI_BENCH_ZERO_MEMORY_H
#define TT_CLI_BENCH_ZERO_MEMORY_H

#include <tutti/tutti.h>

typedef struct tt__bench_memory {
    double params_mb; /* parameters: whole ones, slices, and the places where units are gathered */
    double grads_mb;  /* gradients: buckets, places of whole ones, and of slices */
    double state_mb;  /* the tensors of the optimizer's state */
} tt__bench_memory;

/* Measure it, between two steps. Parameters and gradients: their resident pages (mincore); state: its tensors' sizes.
 * `wrapper` is tt_ddp()'s or tt_fully_shard()'s, `optimizer` one of its parameters, sharded or not. */
tt_status tt__bench_zero_memory(tt_module *wrapper, tt_optimizer *optimizer, tt__bench_memory *out);

#endif
