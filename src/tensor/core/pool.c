#include "tensor/core/pool.h"

#include "base/build.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#if TT__ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, size) __asan_poison_memory_region(p, size) /* so that use after the end of a scope is found */
#define UNPOISON(p, size) __asan_unpoison_memory_region(p, size)
#else
#define POISON(p, size) (void)(p)
#define UNPOISON(p, size) (void)(p)
#endif

enum { UNIT = 64, CLASSES_A_DOUBLING = 8, CLASSES = CLASSES_A_DOUBLING * 58, LARGE = 1 << 20 };

/* The header before a block's payload. */
typedef struct block {
    _Alignas(UNIT) struct block *next;
    const void *pool; /* of the thread that allocated it */
    size_t capacity;  /* of the payload, in bytes */
    unsigned cls;
} block;

typedef struct pool {
    block *waiting[CLASSES];
    int registered;
} pool;

static _Atomic size_t bytes_held, bytes_most; /* taken from the system by all threads: now, at most */

static _Thread_local pool mine;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* Return the class of a size. Units beyond the first two decide: t = units - 2 in [8..15] << shift gives class
 * 8 * shift + (t >> shift). */
static unsigned class_of(size_t size, size_t *capacity) {
    size_t t = size > 2 * UNIT ? (size - UNIT - 1) / UNIT : 0;
    unsigned shift = t < 8 ? 0 : 60 - (unsigned)__builtin_clzll(t);
    *capacity = (((t >> shift) + 1) << shift) * UNIT + UNIT;
    return 8 * shift + (unsigned)(t >> shift);
}

static block *block_obtain(size_t capacity) {
    block *b = aligned_alloc(UNIT, sizeof *b + capacity);
    if (!b)
        return NULL;
    size_t held = atomic_fetch_add_explicit(&bytes_held, sizeof *b + capacity, memory_order_relaxed);
    size_t most = atomic_load_explicit(&bytes_most, memory_order_relaxed);
    held += sizeof *b + capacity;
    while (held > most && !atomic_compare_exchange_weak_explicit(&bytes_most, &most, held, memory_order_relaxed,
                                                                 memory_order_relaxed)) {
    }
    return b;
}

static void block_release(block *b) {
    atomic_fetch_sub_explicit(&bytes_held, sizeof *b + b->capacity, memory_order_relaxed);
    free(b);
}

static void pool_trim(void *p) {
    pool *of = p;
    of->registered = 0;
    for (int cls = 0; cls < CLASSES; cls++) {
        while (of->waiting[cls]) {
            block *b = of->waiting[cls];
            of->waiting[cls] = b->next;
            UNPOISON(b + 1, b->capacity);
            block_release(b);
        }
    }
}

static void make_key(void) { pthread_key_create(&key, pool_trim); }

/* Take a waiting block of this class. A large request also takes one of up to 1.5 times its size, so that what a step
 * needs at different times can share memory. */
static block *take_waiting(unsigned cls, size_t size) {
    size_t most = size < LARGE ? 0 : size + size / 2;
    for (unsigned c = cls; c < CLASSES; c++) {
        block *b = mine.waiting[c];
        if (b && (c == cls || b->capacity <= most)) {
            mine.waiting[c] = b->next;
            UNPOISON(b + 1, b->capacity);
            return b;
        }
        if (c > cls + CLASSES_A_DOUBLING || !most)
            break;
    }
    return NULL;
}

void *tt__pool_alloc(size_t size) {
    if (size > SIZE_MAX / 4)
        return NULL;
    size_t capacity;
    unsigned cls = class_of(size, &capacity);
    block *b = take_waiting(cls, size);
    if (b)
        return b + 1;
    b = block_obtain(capacity);
    if (!b)
        return NULL;
    b->pool = &mine;
    b->capacity = capacity;
    b->cls = cls;
    return b + 1;
}

void tt__pool_free(void *p) {
    if (!p)
        return;
    block *b = (block *)p - 1;
    if (b->pool != &mine) {
        block_release(b);
        return;
    }
    if (!mine.registered) {
        pthread_once(&key_once, make_key);
        mine.registered = pthread_setspecific(key, &mine) == 0;
    }
    POISON(p, b->capacity);
    b->next = mine.waiting[b->cls];
    mine.waiting[b->cls] = b;
}

void tt__pool_discard(void *p) {
    if (p)
        block_release((block *)p - 1);
}

void tt__pool_trim(void) { pool_trim(&mine); }

size_t tt__pool_most(void) { return atomic_load_explicit(&bytes_most, memory_order_relaxed); }
