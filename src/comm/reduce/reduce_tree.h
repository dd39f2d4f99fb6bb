/* The one summation order, on buffers that all lie in this process's reach.
 *
 * A leaf is a rank's own elements. A partial is a joined pair, or a leaf made ready to be joined: scaled, and f32 where
 * elements are f16 or bf16, which are rounded once, at the root of the tree. There averages of integers are divided,
 * too. */
#ifndef TT_COMM_REDUCE_REDUCE_TREE_H
#define TT_COMM_REDUCE_REDUCE_TREE_H

#include "base/machine/cpu.h"

#include <tutti/comm.h>

#include <stdbool.h>
#include <stddef.h>

enum { TT__TREE_MAX = 1024 /* leaves */ };

/* Is it a type whose elements are reduced as f32? */
static inline bool tt__is_half(tt_dtype dtype) { return dtype == TT_F16 || dtype == TT_BF16; }

/* Reduce src[r] (count) of ranks r of 0..n-1 into every dst[0..dsts-1] (count). A dst may be a src; otherwise they do
 * not overlap. op and dtype must fit each other; with TT_PREMUL_SUM use the next one. */
void tt__reduce_tree(void *const *dst, int dsts, const void *const *src, int n, size_t count, tt_dtype dtype,
                     tt_reduce_op op);

/* The same, with the factor of each leaf, factors[r], for TT_PREMUL_SUM. NULL, or another op: as tt__reduce_tree(). */
void tt__reduce_tree_scaled(void *const *dst, int dsts, const void *const *src, const double *factors, int n,
                            size_t count, tt_dtype dtype, tt_reduce_op op);

/* The kernels that tt__reduce_tree() runs on two leaves and one destination, or two; for all types except 16-bit
 * floats. The scales are 0.5, and matter only in averages. */
typedef struct tt__reduce_pair {
    void (*one)(void *dst, const void *a, const void *b, size_t n, double scale_a, double scale_b);
    void (*two)(void *dst, void *dst_2, const void *a, const void *b, size_t n, double scale_a, double scale_b);
} tt__reduce_pair;
tt__reduce_pair tt__reduce_pair_find(tt_dtype dtype, tt_reduce_op op);

/* Return NULL if elements of `dtype` can be reduced by `op`; else why not, "bools have no average". */
const char *tt__reduce_refusal(tt_dtype dtype, tt_reduce_op op);

/* ---- For algorithms whose ranks join partials: leaf, then join() by join() in the order of the tree, then round. Same
 * bits as above. */

/* Return the type of partials: TT_F32 for 16-bit floats, else dtype. */
tt_dtype tt__partial_dtype(tt_dtype dtype);

/* Return the factor of a leaf: 1/n of TT_AVG of floats over n ranks, `factor` of TT_PREMUL_SUM, else 1. */
double tt__leaf_scale(tt_dtype dtype, tt_reduce_op op, int n, double factor);

/* Return what the root's partial is divided by: n for TT_AVG of integers over n ranks, else 1. */
int tt__root_divisor(tt_dtype dtype, tt_reduce_op op, int n);

/* dst (count partials) := leaf src (count). dst may be src where partials have the leaf's type. */
void tt__reduce_leaf(void *dst, const void *src, size_t count, tt_dtype dtype, double scale);

/* dst := left op right, all (count) partials of `dtype` elements; left holds the lower ranks. dst may be either. */
void tt__reduce_join(void *dst, const void *left, const void *right, size_t count, tt_dtype dtype, tt_reduce_op op);

/* dst (count elements) := the root's partial src, divided by `divisor`. dst may be src where partials have the
 * elements' type. */
void tt__reduce_round(void *dst, const void *src, size_t count, tt_dtype dtype, int divisor);

/* Elements at..at+n-1. */
typedef struct tt__slice {
    size_t at, n;
} tt__slice;

/* Return share i of n of `count` elements of `size` bytes, a power of two up to 64. */
static inline tt__slice tt__slice_of(size_t count, size_t size, int n, int i) {
    size_t shares = (size_t)n, line = (size_t)TT__CACHE_LINE >> __builtin_ctzl(size);
    bool is_power = !(shares & (shares - 1)); /* divisions cost as much as the rest of a small call */
    size_t part = is_power ? (count + shares - 1) >> __builtin_ctzl(shares) : (count + shares - 1) / shares;
    size_t share = (part + line - 1) & ~(line - 1), at = share * (size_t)i;
    if (at >= count)
        return (tt__slice){count, 0};
    return (tt__slice){at, count - at < share ? count - at : share};
}

#endif
