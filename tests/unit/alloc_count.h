/* Counts calls of the allocator in this program, by standing in front of glibc's. Include it in one test program's only source.
 * Sanitizers bring an allocator of their own; there alloc_count_works is false and the count stays 0. */
#ifndef TT_TESTS_UNIT_ALLOC_COUNT_H
#define TT_TESTS_UNIT_ALLOC_COUNT_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static volatile long alloc_count;
static volatile long
    alloc_count_own; /* of them, those made by the program itself, with what is linked into it statically, and not by shared libraries */

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

extern char __executable_start, etext;

static void alloc_count_call(const void *caller) {
    alloc_count++;
    if ((const char *)caller >= &__executable_start && (const char *)caller < &etext)
        alloc_count_own++;
}

void *malloc(size_t size) {
    alloc_count_call(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
    alloc_count_call(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size) {
    alloc_count_call(__builtin_return_address(0));
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    alloc_count_call(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    alloc_count_call(__builtin_return_address(0));
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
#else
static const bool alloc_count_works = false;
#endif

#endif
