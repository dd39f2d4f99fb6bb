/* The one summation order (comm/reduce/reduce_tree.c) over shards: which of its partial sums a block of neighbouring
 * shards makes by itself, and how those of all blocks go on to the whole.
 *
 * V shards are the leaves of the tree that V ranks would sum in. Ranks have blocks of neighbours. */
#ifndef TT_REDUCER_SHARD_TREE_H
#define TT_REDUCER_SHARD_TREE_H

#include "base/export.h"

#include <stdbool.h>

enum { TT__SHARDS_MAX = 1024, TT__SHARD_DEPTH = 32 };

/* Leaves lo..hi-1, a subtree. */
typedef struct tt__shard_node {
    int lo, hi;
} tt__shard_node;

/* Subtrees from left to right, no two of which are halves of a third. */
typedef struct tt__shard_stack {
    int depth;
    tt__shard_node node[TT__SHARD_DEPTH];
} tt__shard_stack;

/* Append a subtree to those of the tree over n leaves, and join what can be. Returns how many joins that makes: each
 * time the last two become one. */
int tt__shard_push(tt__shard_stack *stack, int n, tt__shard_node node);

/* The shards of a rank of `world`, which may be no divisor of `shards`. */
TT__EXPORT tt__shard_node tt__shard_block(int shards, int world, int rank);

/* Does each rank make one partial sum, and is what remains the tree that `world` ranks sum in? */
bool tt__shard_blocks_are_ranks(int shards, int world);

#endif
