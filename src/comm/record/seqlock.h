/* A sequence lock: one writer, which never waits, and readers, also in other processes, that see whole data or none.
 * The version lies in the data; it is odd while they are written, and 0 before the first write. */
#ifndef TT_COMM_RECORD_SEQLOCK_H
#define TT_COMM_RECORD_SEQLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Begin to write. Returns what tt__seqlock_end() takes. */
static inline uint32_t tt__seqlock_begin(_Atomic uint32_t *version) {
    uint32_t before = atomic_load_explicit(version, memory_order_relaxed);
    atomic_store_explicit(version, before + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    return before;
}

static inline void tt__seqlock_end(_Atomic uint32_t *version, uint32_t before) {
    atomic_store_explicit(version, before + 2, memory_order_release);
}

/* Copy `bytes` of data, once; false: they were being written, so the copy is not whole. */
static inline bool tt__seqlock_try_read(const _Atomic uint32_t *version, void *copy, const void *data, size_t bytes) {
    uint32_t before = atomic_load_explicit(version, memory_order_acquire);
    memcpy(copy, data, bytes);
    atomic_thread_fence(memory_order_acquire);
    return before % 2 == 0 && atomic_load_explicit(version, memory_order_relaxed) == before;
}

/* Copy them, in at most a hundred tries. */
static inline bool tt__seqlock_read(const _Atomic uint32_t *version, void *copy, const void *data, size_t bytes) {
    for (int i = 0; i < 100; i++)
        if (tt__seqlock_try_read(version, copy, data, bytes))
            return true;
    return false;
}

#endif
