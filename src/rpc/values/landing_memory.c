#include "rpc/values/landing_memory.h"

#include "base/build.h"
#include "base/machine/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    ALIGNED = 64,
    HUGE_PAGE = 2 << 20,   /* bytes, if the machine has huge pages */
    KEPT_BLOCKS = 16,      /* the most blocks that are kept */
    KEPT_BYTES = 64 << 20, /* the most bytes of all of them */
    KEPT_MS = 2000         /* how long they are kept */
};

/* Stands before the data. */
typedef struct landing_block {
    size_t size; /* of the mapping, with this header; 0: aligned_alloc() made the block */
    int64_t given_ms;
    char pad[ALIGNED - sizeof(size_t) - sizeof(int64_t)];
} landing_block;
_Static_assert(sizeof(landing_block) == ALIGNED, "the data stay aligned");

/* Only tried: a thread that finds it taken does without kept blocks. So a child that was forked while another thread
 * had the lock doesn't hang. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static landing_block *kept[KEPT_BLOCKS]; /* (kept_count) in the order in which they were given back */
static int kept_count;
static size_t kept_bytes;

static landing_block *remove_kept_block(int at) {
    landing_block *block = kept[at];
    kept_bytes -= block->size;
    for (kept_count--; at < kept_count; at++)
        kept[at] = kept[at + 1];
    return block;
}

static void release_oldest(void) {
    landing_block *block = remove_kept_block(0);
    munmap(block, block->size);
}

static void release_older_than(int64_t ms) {
    while (kept_count && kept[0]->given_ms <= ms)
        release_oldest();
}

/* Take the last used kept block of a size near this one; NULL: there is none. */
static landing_block *take_kept_block(size_t size) {
    landing_block *block = NULL;
    if (pthread_mutex_trylock(&kept_lock))
        return NULL;
    for (int i = kept_count; i-- && !block;)
        if (kept[i]->size >= size && kept[i]->size / 4 * 3 <= size)
            block = remove_kept_block(i);
    pthread_mutex_unlock(&kept_lock);
    return block;
}

/* Map `size` bytes, at a multiple of `alignment`, which is a power of two. */
static void *map_aligned(size_t size, size_t alignment) {
    size_t room = size + alignment;
    char *all = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)all & (alignment - 1), after = room - before - size;
    if (before)
        munmap(all, before);
    if (after)
        munmap(all + before + size, after);
    return all + before;
}

static landing_block *map_block(size_t size) {
    landing_block *block = map_aligned(size, size < HUGE_PAGE ? 4096 : HUGE_PAGE);
    if (block && size >= HUGE_PAGE)
        madvise(block, size, MADV_HUGEPAGE);
    return block;
}

void *tt__landing_take(size_t bytes) {
    if (bytes > SIZE_MAX / 4)
        return NULL;
    bool mapped = bytes >= TT__LANDING_LARGE && !TT__ASAN; /* ASan can't check memory that is kept here */
    size_t page = bytes < HUGE_PAGE ? 4096 : HUGE_PAGE, unit = mapped ? page : ALIGNED;
    size_t size = (bytes + sizeof(landing_block) + unit - 1) / unit * unit;
    landing_block *block = mapped ? take_kept_block(size) : aligned_alloc(ALIGNED, size);
    if (!block && mapped) {
        block = map_block(size);
        if (block)
            block->size = size;
    }
    if (!block)
        return NULL;
    if (!mapped)
        block->size = 0;
    return block + 1;
}

static bool keep_block(landing_block *block) {
    if (block->size > KEPT_BYTES || pthread_mutex_trylock(&kept_lock))
        return false;
    int64_t now = block->given_ms = tt__now_ms();
    release_older_than(now - KEPT_MS);
    while (kept_count && (kept_count == KEPT_BLOCKS || kept_bytes + block->size > KEPT_BYTES))
        release_oldest();
    kept[kept_count++] = block;
    kept_bytes += block->size;
    pthread_mutex_unlock(&kept_lock);
    return true;
}

void tt__landing_give(void *data) {
    landing_block *block = data ? (landing_block *)data - 1 : NULL;
    if (block && !block->size)
        free(block);
    else if (block && !keep_block(block))
        munmap(block, block->size);
}

void tt__landing_release_kept(void) {
    if (pthread_mutex_trylock(&kept_lock))
        return;
    release_older_than(INT64_MAX);
    pthread_mutex_unlock(&kept_lock);
}
