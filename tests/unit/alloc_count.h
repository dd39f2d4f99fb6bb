/* Counts calls of the allocator in a program, by standing in front of glibc's, and makes one fail. The tests that
 * include it are one program, of which support/alloc_count.c is a part. Sanitizers bring an allocator of their own;
 * there alloc_count_works is false and the counts stay 0. Threads may allocate at the same time. */
#ifndef TT_TESTS_UNIT_ALLOC_COUNT_H
#define TT_TESTS_UNIT_ALLOC_COUNT_H

#include <stdatomic.h>
#include <stdbool.h>

extern const bool alloc_count_works;
extern atomic_long alloc_count;
/* Calls by the program itself, with what is linked into it statically, and not by shared libraries; blocks of theirs
 * not freed yet. */
extern atomic_long alloc_count_own, alloc_live_own;
/* the call with this number of alloc_count_own fails; 0: none */
extern atomic_long alloc_fail_own;

#endif
