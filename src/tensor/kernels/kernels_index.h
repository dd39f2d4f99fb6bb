/* The kernels of indexing and order: lines of TT__KERNEL_LIST. `index` is i64, in range; `dim` is one of y's or x's. */
#ifndef TT_TENSOR_KERNELS_INDEX_H
#define TT_TENSOR_KERNELS_INDEX_H

#include <stdbool.h>

/* X(name, arguments), one line a kernel. */
#define TT__INDEX_KERNELS(X)                                                                                           \
    /* Along `dim`, index (n): y[i] = x[index[i]]; y[index[i]] += x[i], i rising. */                                   \
    X(index_select, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                              \
    X(index_add, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                                 \
    /* For each place p of index, and q the same with index[p] in dimension `dim`: y[p] = x[q];              \
     * y[q] = x[p]; y[q] += x[p], in row-major order of p. */         \
    X(gather, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                                    \
    X(scatter, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                                   \
    X(scatter_add, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index))                               \
    /* Of the last two dimensions: y = x where column - row is at least (upper), at most `diagonal`, else 0. */        \
    X(triangle, (tt_tensor * y, const tt_tensor *x, int64_t diagonal, bool upper))                                     \
    /* Along `dim`: y[i] = x[0] + ... + x[i]; backwards: x[i] + ... + x[n-1]. */                                       \
    X(cumsum, (tt_tensor * y, const tt_tensor *x, int dim, bool backwards))                                            \
    /* Contiguous. The first k of each row of x, sorted, and where they were (i64); equal ones in order, NaN  \
     * as the largest: y and indices (..., k), x (..., n), k <= n. */        \
    X(sort, (tt_tensor * y, tt_tensor * indices, const tt_tensor *x, bool descending))                                 \
    /* Floats. y (N,C,H',W') = x (N,C,H,W) in another size; dx += g by the same weights. */                            \
    X(resize, (tt_tensor * y, const tt_tensor *x, const struct tt__resize *how))                                       \
    X(resize_backward, (tt_tensor * dx, const tt_tensor *g, const struct tt__resize *how))                             \
    /* f32, f64, others where a device has them, with f32 masks; last strides are 1: attention_loops.h says more. */   \
    X(attention, (tt_tensor * y, tt_tensor * stats, const struct tt__attention *in))                                   \
    X(attention_backward, (tt_tensor * dq, tt_tensor * dk, tt_tensor * dv, const tt_tensor *stats, const tt_tensor *g, \
                           const struct tt__attention *in))                                                            \
    /* For all matrices of a batch (...), which tensors have before these dimensions; NULL: they go one by one. */     \
    X(attention_batch, (tt_tensor * y, tt_tensor * stats, const struct tt__attention *in))                             \
    X(attention_batch_backward, (tt_tensor * dq, tt_tensor * dk, tt_tensor * dv, const tt_tensor *stats,               \
                                 const tt_tensor *g, const struct tt__attention *in))

typedef struct tt__attention {
    const struct tt_tensor *q, *k, *v; /* (T,D), (S,D), (S,Dv) */
    const struct tt_tensor *mask;      /* (T,S), added to the scores; any layout; NULL: none */
    const struct tt_tensor *y;         /* backward: what forward made; NULL: it was not kept */
    double scale;
    bool causal; /* row t sees the first t + 1 */
} tt__attention;

typedef struct tt__resize {
    bool nearest;       /* else bilinear */
    bool align_corners; /* the outer elements' middles, and not their edges, are the image's edges */
} tt__resize;

#endif
