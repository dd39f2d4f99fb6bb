/* Averages over shards, of which each rank has several one after the other: the bits that as many ranks as there are
 * shards would get, whatever the number of ranks. */
#ifndef TT_REDUCER_SHARD_SUMS_H
#define TT_REDUCER_SHARD_SUMS_H

#include "base/export.h"

#include <tutti/reducer.h>

#include <stdbool.h>

typedef struct tt__shard_sums tt__shard_sums;

/* Have the reducer average over `shards`, of which its ranks have blocks (tt__shard_block()), by a communication hook.
 * *sums belongs to the reducer until that is freed. NULL: each rank has one shard, and the reducer itself sums in the
 * same order. Collective. Errors: those of tt_reducer_set_comm_hook(); TT_ERR_MEMORY. */
TT__EXPORT tt_status tt__shard_sums_set(tt_reducer *reducer, int shards, tt__shard_sums **sums);

/* Add the gradient of parameter i, which lies in the reducer, to the sums, as that of this rank's shard number `shard`
 * (0, 1, ...). After the last shard it is ready to be averaged, and the gradient's memory has a partial sum. */
TT__EXPORT void tt__shard_sums_add(tt__shard_sums *sums, size_t i, int shard);

enum { TT__SHARDS_MAX = 1024, TT__SHARD_DEPTH = 32 };

/* Shards lo..hi-1. */
typedef struct tt__shard_node {
    int lo, hi;
} tt__shard_node;

/* The shards of a rank of `world`, which may be no divisor of `shards`. */
TT__EXPORT tt__shard_node tt__shard_block(int shards, int world, int rank);

#endif
