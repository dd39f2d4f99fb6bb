/* Recycled memory of a thread: blocks in size classes, 64-byte aligned. A freed block waits in its class for the next
 * request, so that a loop that always asks for the same sizes asks the system for nothing after its first round.
 *
 * Class of a size: its number of 64-byte units beyond the first, rounded up to four significant bits (at most an eighth
 * is lost, and nothing where 2^n elements follow a header). A large request also takes a waiting block of up to 1.5
 * times its size. A block freed by a thread that did not allocate it goes back to the system: otherwise a producer's
 * blocks would pile up in its consumer's lists. Lists are released when the thread ends. */
#ifndef TT_TENSOR_POOL_H
#define TT_TENSOR_POOL_H

#include <stddef.h>

/* Allocate at least `size` bytes, uninitialised; NULL if there is no memory. */
void *tt__pool_alloc(size_t size);

/* Give a block back to the thread's lists / to the system. NULL is allowed. */
void tt__pool_free(void *p);
void tt__pool_discard(void *p);

/* Return the most bytes that the pools of all threads have had from the system at once, waiting blocks included. */
size_t tt__pool_most(void);

/* Give all waiting blocks of this thread back to the system. */
void tt__pool_trim(void);

#endif
