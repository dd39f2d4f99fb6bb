/* Counts calls of the allocator in this program, by standing in front of glibc's. Include it in one test program's only source.
 * Sanitizers bring an allocator of their own; there alloc_count_works is false and the count stays 0. */
#ifndef TT_TESTS_UNIT_ALLOC_COUNT_H
#define TT_TESTS_UNIT_ALLOC_COUNT_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static volatile long alloc_count;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOC_COUNT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOC_COUNT_SANITIZED 1
#endif
#endif

#if defined(__GLIBC__) && !defined(ALLOC_COUNT_SANITIZED)
static const bool alloc_count_works = true;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
    alloc_count++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
    alloc_count++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size) {
    alloc_count++;
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    alloc_count++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    alloc_count++;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
#else
static const bool alloc_count_works = false;
#endif

#endif
