#include "tensor/cuda/device/cuda_arena.h"

#include <stdlib.h>

struct tt__arena_block {
    uint64_t address;
    size_t bytes;
    bool used;
    tt__arena_pool *pool;              /* NULL: the arena's common one */
    tt__arena_block *before, *after;   /* neighbours in memory */
    tt__arena_block *smaller, *larger; /* of one class's free list */
};

/* ---- free blocks, by class ---- */

static int size_class(size_t bytes) { return 63 - __builtin_clzll((unsigned long long)bytes); }

/* Is a to be taken before b? */
static bool comes_first(const tt__arena_block *a, const tt__arena_block *b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

static tt__arena_pool *pool_of(tt__arena *arena, const tt__arena_block *block) {
    return block->pool ? block->pool : &arena->common;
}

static void list_free(tt__arena *arena, tt__arena_block *block) {
    tt__arena_block **at = &pool_of(arena, block)->free[size_class(block->bytes)], *before = NULL;
    for (; *at && comes_first(*at, block); at = &(*at)->larger)
        before = *at;
    block->smaller = before;
    block->larger = *at;
    if (*at)
        (*at)->smaller = block;
    *at = block;
}

static void unlist_free(tt__arena *arena, tt__arena_block *block) {
    if (block->smaller)
        block->smaller->larger = block->larger;
    else
        pool_of(arena, block)->free[size_class(block->bytes)] = block->larger;
    if (block->larger)
        block->larger->smaller = block->smaller;
}

static tt__arena_block *best_fit(const tt__arena_pool *pool, size_t bytes) {
    for (int c = size_class(bytes); c < TT__ARENA_CLASSES; c++)
        for (tt__arena_block *block = pool->free[c]; block; block = block->larger)
            if (block->bytes >= bytes)
                return block;
    return NULL;
}

/* ---- blocks in use, by address ---- */

static size_t block_slot(const tt__arena *arena, uint64_t address) {
    return (size_t)((address / TT__ARENA_ALIGNMENT) * 0x9e3779b97f4a7c15u >> 20) & (arena->table_size - 1);
}

static void table_put(tt__arena *arena, tt__arena_block *block) {
    size_t i = block_slot(arena, block->address);
    while (arena->table[i])
        i = (i + 1) & (arena->table_size - 1);
    arena->table[i] = block;
}

/* Make room for one more block, with the table at most half full. */
static bool table_has_room(tt__arena *arena) {
    if (2 * (arena->used_blocks + 1) <= arena->table_size)
        return true;
    size_t size = arena->table_size ? 2 * arena->table_size : 64, old_size = arena->table_size;
    tt__arena_block **old = arena->table, **table = calloc(size, sizeof *table);
    if (!table)
        return false;
    arena->table = table;
    arena->table_size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i])
            table_put(arena, old[i]);
    free(old);
    return true;
}

/* Where a block stands in the table, or where the search for it ends. */
static size_t table_find(const tt__arena *arena, uint64_t address) {
    size_t mask = arena->table_size - 1, i = block_slot(arena, address);
    while (arena->table[i] && arena->table[i]->address != address)
        i = (i + 1) & mask;
    return i;
}

const tt__arena_pool *tt__arena_pool_of(const tt__arena *arena, uint64_t address) {
    const tt__arena_block *block = arena->table_size ? arena->table[table_find(arena, address)] : NULL;
    return block ? block->pool : NULL;
}

/* Take a block out of the table, and move up later ones that it had displaced. NULL: it is not there. */
static tt__arena_block *table_take(tt__arena *arena, uint64_t address) {
    if (!arena->table_size)
        return NULL;
    size_t mask = arena->table_size - 1, hole = table_find(arena, address);
    tt__arena_block *found = arena->table[hole];
    if (!found)
        return NULL;
    for (size_t i = (hole + 1) & mask; arena->table[i]; i = (i + 1) & mask) {
        size_t home = block_slot(arena, arena->table[i]->address);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        arena->table[hole] = arena->table[i];
        hole = i;
    }
    arena->table[hole] = NULL;
    return found;
}

/* ---- taking ---- */

static tt__arena_block *new_block(tt__arena *arena, uint64_t address, size_t bytes, tt__arena_block *before) {
    tt__arena_block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    *block = (tt__arena_block){.address = address, .bytes = bytes, .before = before};
    block->after = before ? before->after : NULL;
    if (before)
        before->after = block;
    if (block->after)
        block->after->before = block;
    else
        arena->last = block;
    return block;
}

/* The last block, if it is free for all. */
static tt__arena_block *common_end(const tt__arena *arena) {
    return arena->last && !arena->last->used && !arena->last->pool ? arena->last : NULL;
}

static void drop_last(tt__arena *arena) {
    tt__arena_block *last = arena->last;
    arena->last = last->before;
    if (last->before)
        last->before->after = NULL;
    free(last);
}

/* Back more of the range until its last free block has `bytes`. */
static tt__arena_block *grow(tt__arena *arena, size_t bytes) {
    tt__arena_block *end = common_end(arena);
    size_t lacking = bytes - (end ? end->bytes : 0), more = (lacking + arena->step - 1) / arena->step * arena->step;
    if (more < lacking || more > arena->reserved - arena->backed)
        return NULL;
    tt__arena_block *added = end ? end : new_block(arena, arena->base + arena->backed, 0, arena->last);
    if (!added)
        return NULL;
    if (!arena->back(arena, more)) {
        if (added != end)
            drop_last(arena);
        return NULL;
    }
    arena->backed += more;
    if (added == end)
        unlist_free(arena, added);
    added->bytes += more;
    list_free(arena, added);
    return added;
}

/* Make what a block has beyond `bytes` a free block of its own. */
static void split(tt__arena *arena, tt__arena_block *block, size_t bytes) {
    tt__arena_block *rest =
        block->bytes > bytes ? new_block(arena, block->address + bytes, block->bytes - bytes, block) : NULL;
    if (!rest)
        return;
    block->bytes = bytes;
    rest->pool = block->pool;
    list_free(arena, rest);
}

uint64_t tt__arena_take_for(tt__arena *arena, tt__arena_pool *pool, size_t bytes) {
    size_t whole = (bytes + TT__ARENA_ALIGNMENT - 1) / TT__ARENA_ALIGNMENT * TT__ARENA_ALIGNMENT;
    if (whole < bytes || !table_has_room(arena))
        return 0;
    whole = whole ? whole : TT__ARENA_ALIGNMENT;
    tt__arena_block *block = pool ? best_fit(pool, whole) : NULL;
    if (!block)
        block = best_fit(&arena->common, whole);
    if (!block)
        block = grow(arena, whole);
    if (!block)
        return 0;
    unlist_free(arena, block);
    split(arena, block, whole);
    arena->used += block->pool ? 0 : block->bytes; /* a pool's are counted already */
    block->used = true;
    block->pool = pool;
    table_put(arena, block);
    arena->used_blocks++;
    arena->takes++;
    arena->most_used = arena->used > arena->most_used ? arena->used : arena->most_used;
    return block->address;
}

/* ---- giving back ---- */

/* Join a free block with the free one that follows it. */
static void join_with_next(tt__arena *arena, tt__arena_block *block) {
    tt__arena_block *next = block->after;
    if (!next || next->used || next->pool != block->pool)
        return;
    unlist_free(arena, next);
    block->bytes += next->bytes;
    block->after = next->after;
    if (next->after)
        next->after->before = block;
    else
        arena->last = block;
    free(next);
}

/* Join a block that has become free with its free neighbours, and list it. */
static void settle_free(tt__arena *arena, tt__arena_block *block) {
    join_with_next(arena, block);
    list_free(arena, block);
    tt__arena_block *before = block->before;
    if (before && !before->used && before->pool == block->pool) {
        unlist_free(arena, before);
        join_with_next(arena, before);
        list_free(arena, before);
    }
}

void tt__arena_give(tt__arena *arena, uint64_t address) { tt__arena_give_to(arena, NULL, address); }

void tt__arena_give_to(tt__arena *arena, tt__arena_pool *pool, uint64_t address) {
    tt__arena_block *block = table_take(arena, address);
    if (!block)
        return;
    block->used = false;
    block->pool = block->pool ? block->pool : pool;
    arena->used_blocks--;
    arena->used -= block->pool ? 0 : block->bytes;
    settle_free(arena, block);
}

void tt__arena_pool_end(tt__arena *arena, tt__arena_pool *pool) {
    for (tt__arena_block *block = arena->last, *before; block; block = before) {
        before = block->before;
        if (block->pool != pool)
            continue;
        if (!block->used)
            unlist_free(arena, block);
        block->pool = NULL;
        if (block->used)
            continue;
        arena->used -= block->bytes;
        settle_free(arena, block);
    }
}

size_t tt__arena_largest_free(const tt__arena *arena) {
    for (int c = TT__ARENA_CLASSES - 1; c >= 0; c--) {
        const tt__arena_block *block = arena->common.free[c];
        while (block && block->larger)
            block = block->larger;
        if (block)
            return block->bytes;
    }
    return 0;
}

size_t tt__arena_free_at_end(const tt__arena *arena) {
    const tt__arena_block *end = common_end(arena);
    return end ? end->bytes : 0;
}

void tt__arena_cut(tt__arena *arena, size_t bytes) {
    tt__arena_block *last = arena->last;
    unlist_free(arena, last);
    last->bytes -= bytes;
    arena->backed -= bytes;
    if (last->bytes)
        list_free(arena, last);
    else
        drop_last(arena);
}

/* Count a block of `bytes` in a list of at most n sizes, in falling order, and return their number, so far `sizes`. */
static int note_size(int sizes, int n, size_t *list, size_t *count, size_t bytes) {
    int i = 0, last;
    while (i < sizes && list[i] > bytes)
        i++;
    if (i < sizes && list[i] == bytes) {
        count[i]++;
        return sizes;
    }
    if (i == n)
        return sizes;
    for (last = sizes < n ? sizes : n - 1; last > i; last--) {
        list[last] = list[last - 1];
        count[last] = count[last - 1];
    }
    list[i] = bytes;
    count[i] = 1;
    return sizes < n ? sizes + 1 : n;
}

int tt__arena_largest_used(const tt__arena *arena, int n, size_t *bytes, size_t *count) {
    int sizes = 0;
    for (size_t i = 0; i < arena->table_size; i++)
        if (arena->table[i])
            sizes = note_size(sizes, n, bytes, count, arena->table[i]->bytes);
    return sizes;
}

void tt__arena_end(tt__arena *arena) {
    for (tt__arena_block *block = arena->last; block;) {
        tt__arena_block *before = block->before;
        free(block);
        block = before;
    }
    free(arena->table);
    arena->last = NULL;
    arena->table = NULL;
}
