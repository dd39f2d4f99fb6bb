/* The elements of a reduction: of one buffer, or, for coalesced calls, of several as if they lay one after the
 * other. */
#ifndef TT_COMM_COLLECTIVE_SHARED_COALESCED_SHARED_H
#define TT_COMM_COLLECTIVE_SHARED_COALESCED_SHARED_H

#include "comm/work.h"

/* Return where elements from..from+n-1 lie in one piece; NULL if they don't. */
void *tt__elements_at(const tt_call *call, size_t from, size_t n);

/* Copy elements from..from+n-1 to `dst`, or from `src`. */
void tt__elements_gather(const tt_call *call, size_t from, size_t n, void *dst);
void tt__elements_scatter(const tt_call *call, size_t from, size_t n, const void *src);

#endif
