/* The memory of one device: one range of addresses, of which as much is backed as was ever needed, handed out in
 * blocks.
 *
 * Blocks stand in order of address; neighbours that are free are one. A block is taken where it fits best: the smallest
 * free one that is large enough, and of these the lowest. What is freed is reused at once, by work that is enqueued
 * later on the same stream. One range has two uses: nothing is lost between segments, and all of it can be registered
 * or mapped elsewhere at once.
 *
 * A pool is a set of blocks that one graph of work uses at each launch. Blocks of a pool that are given back stay in
 * it, and count as used, until the pool ends. Not thread-safe: the caller locks. */
#ifndef TT_TENSOR_CUDA_CUDA_ARENA_H
#define TT_TENSOR_CUDA_CUDA_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT__ARENA_ALIGNMENT = 512, TT__ARENA_CLASSES = 64 };

typedef struct tt__arena_block tt__arena_block;

/* The free blocks of a pool, by the power of two of their size, in order of size. Begins as zeros. */
typedef struct tt__arena_pool {
    tt__arena_block *free[TT__ARENA_CLASSES];
} tt__arena_pool;

typedef struct tt__arena {
    uint64_t base;   /* address of the range */
    size_t reserved; /* bytes of the range */
    size_t backed;   /* ... that have memory, from its beginning on */
    size_t step;     /* what is backed at a time is a multiple of this */

    /* Back `bytes` more, from base + backed on; false: there is no memory. */
    bool (*back)(struct tt__arena *arena, size_t bytes);
    void *user;

    tt__arena_block *last;          /* the one with the highest address */
    tt__arena_pool common;          /* free blocks that belong to no graph's pool */
    tt__arena_block **table;        /* blocks in use by address: open addressing */
    size_t table_size, used_blocks; /* table_size: a power of two, or 0 */
    size_t used, most_used;         /* bytes of blocks in use and of pools, now and at most */
    uint64_t takes;                 /* blocks that were ever taken */
} tt__arena;

/* Give back a block. One of a pool goes to its pool. */
void tt__arena_give(tt__arena *arena, uint64_t address);

/* Take `bytes` (rounded up) for a pool: one of its free blocks, else a common one, which becomes the pool's. `pool`
 * NULL: for no pool. 0: there is no memory. */
uint64_t tt__arena_take_for(tt__arena *arena, tt__arena_pool *pool, size_t bytes);

/* Give back a block. One of no pool goes to `pool`. */
void tt__arena_give_to(tt__arena *arena, tt__arena_pool *pool, uint64_t address);

/* The pool that a taken block belongs to; NULL: to none. */
const tt__arena_pool *tt__arena_pool_of(const tt__arena *arena, uint64_t address);

/* End a pool: its free blocks are free for all, and those in use will be. */
void tt__arena_pool_end(tt__arena *arena, tt__arena_pool *pool);

/* Return the size of the largest block that could be had without backing more. */
size_t tt__arena_largest_free(const tt__arena *arena);

/* Return how many bytes are free at the end of what is backed. */
size_t tt__arena_free_at_end(const tt__arena *arena);

/* Note that the last `bytes`, which are free, are backed no longer. */
void tt__arena_cut(tt__arena *arena, size_t bytes);

/* Count the blocks in use by size, for the n largest sizes, the largest first. Returns how many sizes are in use, at
 * most n. */
int tt__arena_largest_used(const tt__arena *arena, int n, size_t *bytes, size_t *count);

/* Free the notes about blocks; the range is the caller's. */
void tt__arena_end(tt__arena *arena);

#endif
