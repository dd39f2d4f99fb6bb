/* The elements of a reduction: of one buffer, or, for coalesced calls, of several as if they lay one after the
 * other. */
#ifndef TT_COMM_COLLECTIVE_SHARED_ELEMENTS_H
#define TT_COMM_COLLECTIVE_SHARED_ELEMENTS_H

#include "comm/work.h"

/* A stretch of elements in one buffer. */
typedef struct tt__stretch {
    unsigned char *at;
    size_t n;      /* elements; 0: none are left */
    size_t buffer; /* its number */
    size_t within; /* index in that buffer of the first */
} tt__stretch;

/* Return elements from..end-1, or as many of them as lie in one buffer with the first. */
tt__stretch tt__elements_from(const tt_call *call, size_t from, size_t end);

/* Return where elements from..from+n-1 lie in one piece; NULL if they don't. */
void *tt__elements_at(const tt_call *call, size_t from, size_t n);

/* Copy elements from..from+n-1 to `dst`, or from `src`. */
void tt__elements_gather(const tt_call *call, size_t from, size_t n, void *dst);
void tt__elements_scatter(const tt_call *call, size_t from, size_t n, const void *src);

#endif
