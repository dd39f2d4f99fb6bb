/* The one summation order, on buffers that all lie in this process's reach. */
#ifndef TT_COMM_REDUCE_TREE_H
#define TT_COMM_REDUCE_TREE_H

#include <tutti/comm.h>

/* src[r] (count) for ranks r of 0..n-1: put their reduction into every dst[0..dsts-1] (count). A dst may be a src; otherwise they do not
 * overlap. `op` and `dtype` must fit (no TT_AVG of integers). n is at most 64. */
void tt__reduce_tree(void *const *dst, int dsts, const void *const *src, int n, size_t count, tt_dtype dtype,
                     tt_reduce_op op);

#endif
