#include "unit/alloc_count.h"

#include "base/build.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

atomic_long alloc_count, alloc_count_own, alloc_live_own, alloc_fail_own;

#if defined(__GLIBC__) && !TT__ASAN && !TT__TSAN
const bool alloc_count_works = true;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

extern char __executable_start, etext;

/* Live blocks of the program itself: a hash table that is never full in a test. A removed entry leaves a mark, so that
 * searches go on past it. */
enum { ALLOC_TABLE = 1 << 16 };
static void *alloc_table[ALLOC_TABLE];
static atomic_flag alloc_table_lock = ATOMIC_FLAG_INIT;

static void alloc_lock(void) {
    while (atomic_flag_test_and_set_explicit(&alloc_table_lock, memory_order_acquire))
        ;
}

static void alloc_unlock(void) { atomic_flag_clear_explicit(&alloc_table_lock, memory_order_release); }

/* A fork must not happen while another thread holds the lock: the child would wait for it for ever. */
__attribute__((constructor)) static void alloc_at_fork(void) { pthread_atfork(alloc_lock, alloc_unlock, alloc_unlock); }

static size_t alloc_slot(const void *p) { return ((uintptr_t)p >> 4) * 2654435761u % ALLOC_TABLE; }

static void *alloc_note(void *p) {
    void *const removed = (void *)alloc_table;
    size_t i = alloc_slot(p);
    if (!p)
        return NULL;
    alloc_lock();
    while (alloc_table[i] && alloc_table[i] != removed)
        i = (i + 1) % ALLOC_TABLE;
    alloc_table[i] = p;
    alloc_unlock();
    alloc_live_own++;
    return p;
}

static void alloc_forget(const void *p) {
    size_t i = alloc_slot(p);
    alloc_lock();
    for (int tries = 0; alloc_table[i] && tries < ALLOC_TABLE; tries++, i = (i + 1) % ALLOC_TABLE) {
        if (alloc_table[i] == p) {
            alloc_table[i] = (void *)alloc_table;
            alloc_live_own--;
            break;
        }
    }
    alloc_unlock();
}

typedef enum alloc_verdict { ALLOC_OTHER, ALLOC_OWN, ALLOC_FAILS } alloc_verdict;

static alloc_verdict alloc_judge(const void *caller) {
    alloc_count++;
    if ((const char *)caller < &__executable_start || (const char *)caller >= &etext)
        return ALLOC_OTHER;
    if (++alloc_count_own != alloc_fail_own)
        return ALLOC_OWN;
    errno = ENOMEM;
    return ALLOC_FAILS;
}

/* The result of a call: what `expression` gives, noted if it is the program's own; or NULL. */
#define ALLOC_RESULT(verdict, expression) \
    ((verdict) == ALLOC_FAILS ? NULL : (verdict) == ALLOC_OWN ? alloc_note(expression) : (expression))

void *malloc(size_t size) {
    alloc_verdict v = alloc_judge(__builtin_return_address(0));
    return ALLOC_RESULT(v, __libc_malloc(size));
}

void *calloc(size_t n, size_t size) {
    alloc_verdict v = alloc_judge(__builtin_return_address(0));
    return ALLOC_RESULT(v, __libc_calloc(n, size));
}

void *realloc(void *p, size_t size) {
    alloc_verdict v = alloc_judge(__builtin_return_address(0));
    if (v == ALLOC_FAILS)
        return NULL;
    alloc_forget(p);
    return ALLOC_RESULT(v, __libc_realloc(p, size));
}

void *aligned_alloc(size_t alignment, size_t size) {
    alloc_verdict v = alloc_judge(__builtin_return_address(0));
    return ALLOC_RESULT(v, __libc_memalign(alignment, size));
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    alloc_verdict v = alloc_judge(__builtin_return_address(0));
    void *p = ALLOC_RESULT(v, __libc_memalign(alignment, size));
    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

void free(void *p) {
    if (p)
        alloc_forget(p);
    __libc_free(p);
}
#else
const bool alloc_count_works = false;
#endif
