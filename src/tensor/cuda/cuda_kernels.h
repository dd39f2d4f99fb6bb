/* The kernels of a CUDA device, as C calls them: plain structs, pointers into the device's memory, a stream. Each
 * enqueues its work and returns; errors of the work itself come with a later call. The dtypes that a kernel has no code
 * for are left out of the device's table (cuda_tables.c), so that none is asked for. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_H

#include "tensor/kernels/kernels_calls.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TT__WALK_ARRAYS = 4 };

/* Strided arrays of one shape, walked together: dimensions from the innermost on, joined where all arrays allow it.
 * Strides are in elements. */
typedef struct tt__walk {
    int64_t n; /* elements */
    int ndim;
    int64_t dim[TT_MAX_DIMS];
    int64_t step[TT__WALK_ARRAYS][TT_MAX_DIMS];
    void *p[TT__WALK_ARRAYS];
} tt__walk;

/* A matrix: element (i, j) is p[i * row + j * column]. */
typedef struct tt__cuda_matrix {
    void *p;
    int64_t row, column;
} tt__cuda_matrix;

/* y (M,N) = a (M,K) b (K,N) + beta y + bias (N, or NULL) */
typedef struct tt__cuda_product {
    int64_t M, N, K;
    tt__cuda_matrix y, a, b;
    const void *bias;
    double beta;
} tt__cuda_product;

/* y[i] = factor * sum of x over `inner`, for each element i of `outer`: walks of y and x, and of x alone. With `parts`
 * > 1, that many blocks share a sum, through `scratch` (outer.n * parts). */
typedef struct tt__cuda_sum {
    tt__walk outer, inner;
    double factor;
    int64_t parts;
    double *scratch;
} tt__cuda_sum;

/* How many blocks are to share each of `sums` sums of n terms. */
static inline int64_t tt__cuda_sum_parts(int64_t sums, int64_t n) {
    const int64_t TERMS = 1 << 14, ENOUGH = 1024;
    int64_t parts = sums < ENOUGH ? n / TERMS : 1;
    return parts < 1 ? 1 : parts > ENOUGH ? ENOUGH : parts;
}

/* ---- element by element (cuda_pointwise.cu): array 0 is written; tensor/kernels/kernels.h says what each computes */

cudaError_t tt__cuda_fill(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, double value);
cudaError_t tt__cuda_convert(cudaStream_t stream, tt_dtype to, tt_dtype from, const tt__walk *w);
cudaError_t tt__cuda_scale(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, double factor);

typedef enum tt__cuda_arithmetic { TT__CUDA_ADD, TT__CUDA_SUB, TT__CUDA_MUL } tt__cuda_arithmetic;
cudaError_t tt__cuda_arithmetic_run(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, tt__cuda_arithmetic op);

cudaError_t tt__cuda_relu(cudaStream_t stream, tt_dtype dtype, const tt__walk *w);
cudaError_t tt__cuda_relu_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w);
cudaError_t tt__cuda_unary(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__unary *call);
cudaError_t tt__cuda_unary_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__unary *call);
cudaError_t tt__cuda_binary(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__binary *call);
cudaError_t tt__cuda_binary_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__binary *call,
                                     int input);

/* ---- sums (cuda_reduce.cu), products (cuda_matmul.cu) */

cudaError_t tt__cuda_sum_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_sum *sum);

cudaError_t tt__cuda_matmul(cudaStream_t stream, tt_dtype dtype, const tt__cuda_product *product);

/* ---- softmax (cuda_softmax.cu): contiguous, R rows of V */

cudaError_t tt__cuda_log_softmax(cudaStream_t stream, tt_dtype dtype, void *y, const void *x, int64_t R, int64_t V);
cudaError_t tt__cuda_log_softmax_backward(cudaStream_t stream, tt_dtype dtype, void *dx, const void *y, const void *g,
                                          int64_t R, int64_t V);
cudaError_t tt__cuda_softmax(cudaStream_t stream, tt_dtype dtype, void *y, const void *x, int64_t R, int64_t V);
cudaError_t tt__cuda_softmax_backward(cudaStream_t stream, tt_dtype dtype, void *dx, const void *y, const void *g,
                                      int64_t R, int64_t V);

/* ---- cross entropy (cuda_losses.cu). `rows`: scratch, (B) of double; backward: one */

typedef struct tt__cuda_cross_entropy {
    void *loss, *stats, *dx;
    const void *x, *g;
    const int64_t *t;
    double *rows;
    int64_t B, V;
} tt__cuda_cross_entropy;
cudaError_t tt__cuda_cross_entropy_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c);
cudaError_t tt__cuda_cross_entropy_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c);

/* ---- choices, element by element: comparisons, where and masked_fill, dropout (cuda_choice.cu) */

/* Arrays: y (bool), a, b; a and b have this dtype. */
cudaError_t tt__cuda_compare(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, tt__comparison op);

/* Elements of `size` bytes. where: arrays y, condition (bool), a, b. masked_fill: arrays y, x, mask (bool); the lowest
 * bytes of `value` are the value's bits. */
cudaError_t tt__cuda_where(cudaStream_t stream, size_t size, const tt__walk *w);
cudaError_t tt__cuda_masked_fill(cudaStream_t stream, size_t size, const tt__walk *w, bool when, uint64_t value);

/* Arrays: y, x. */
cudaError_t tt__cuda_dropout(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__dropout *call);

/* ---- reductions other than sums (cuda_reduction.cu) */

/* `outer` has the elements of y. Each is made of the terms of x along `inner`, a walk of x alone, and `parts` blocks
 * share its terms. Backwards `inner` walks x and dx. */
typedef struct tt__cuda_reduction {
    tt__walk outer; /* of y and x; backwards of y, x, dx and g */
    tt__walk inner;
    int64_t parts;
    double *scratch; /* (outer.n, parts) */
    double *each;    /* (outer.n): means of a variance; backwards how many elements share a gradient */
} tt__cuda_reduction;

cudaError_t tt__cuda_var(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, double correction);
cudaError_t tt__cuda_vector_norm(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, double p);
cudaError_t tt__cuda_vector_norm_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, double p);
cudaError_t tt__cuda_share_equal(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, bool nan_equals);
/* y is bool, dtype that of x. */
cudaError_t tt__cuda_any(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, bool all);

/* Lines of n elements of x or dx, `step` apart. `lines` walks their beginnings: arrays y (memory NULL: not wanted),
 * index and x; backwards g, index and dx. */
typedef struct tt__cuda_extreme_lines {
    tt__walk lines;
    int64_t n, step;
} tt__cuda_extreme_lines;
cudaError_t tt__cuda_extreme(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l, bool largest);
cudaError_t tt__cuda_extreme_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l);

/* ---- indexing and order (cuda_index.cu, cuda_sort.cu). Arrays of a walk are y, x and index, unless
 * said otherwise; indices that are out of range are passed over. */

/* Elements of `size` bytes: y = the element of x that lies index * step further on; 0 if index is not one of n
 * places. */
cudaError_t tt__cuda_gather(cudaStream_t stream, size_t size, const tt__walk *w, int64_t step, int64_t n);

/* Lines of n places along the indexed dimension, which `w` leaves out; x_step and index_step are strides along it. In
 * order: the element of y that lies index * step further on, one of `places`, = x; or += x. */
typedef struct tt__cuda_lines {
    tt__walk w;
    int64_t n, step, x_step, index_step, places;
} tt__cuda_lines;
cudaError_t tt__cuda_scatter(cudaStream_t stream, size_t size, const tt__cuda_lines *lines);
cudaError_t tt__cuda_scatter_add(cudaStream_t stream, tt_dtype dtype, const tt__cuda_lines *lines);

/* One index (n) for all lines: its places with the same destination are chained, then each chain is added up, in
 * order, by a thread for each of its elements. Scratch: next (n), heads (n), last (size of y's dimension). */
typedef struct tt__cuda_chains {
    const int64_t *index;
    int64_t n, index_step, destinations;
    int64_t *next; /* the place that follows in the chain; -1: none */
    int64_t *last; /* by destination: where its chain ends so far; -1: there is none */
    bool *heads;   /* does a chain begin here? */
} tt__cuda_chains;
cudaError_t tt__cuda_index_add(cudaStream_t stream, tt_dtype dtype, const tt__cuda_lines *lines,
                               const tt__cuda_chains *chains);

/* Walk of y and x in row-major order; the last two dimensions have R rows and C columns. */
cudaError_t tt__cuda_triangle(cudaStream_t stream, size_t size, const tt__walk *w, int64_t R, int64_t C,
                              int64_t diagonal, bool upper);

/* Lines of n elements, `step` and `x_step` apart: walks of y and x. */
cudaError_t tt__cuda_cumsum(cudaStream_t stream, tt_dtype dtype, const tt__cuda_lines *lines, bool backwards);

/* Rows: x (rows, n), y and indices (rows, k). Scratch: order and spare (rows, n). */
typedef struct tt__cuda_sort {
    const void *x;
    void *y;
    int64_t *indices, *order, *spare;
    int64_t rows, n, k;
    bool descending;
} tt__cuda_sort;
cudaError_t tt__cuda_sort_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_sort *sort);

/* ---- checks of indices that don't wait (cuda_index.cu) */

/* An element out of range, in pinned memory of the host, which kernels write to. */
typedef struct tt__cuda_fault {
    bool set;
    int64_t index, value;
    char text[256]; /* what was expected, and the index's name */
} tt__cuda_fault;

/* Look for the first element of x, walked in row-major order, that is outside low..high and not `but`. If there is one
 * and *fault is not set, set it, with the text of `told`. */
cudaError_t tt__cuda_expect_within(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, int64_t low, int64_t high,
                                   int64_t but, const tt__cuda_fault *told, tt__cuda_fault *fault);

/* ---- the numbers of a graph that come from the host (cuda_graph.cu) */

enum { TT__CUDA_WORDS = 448 };

/* to (n) := words, which are read before this returns; n <= TT__CUDA_WORDS. */
cudaError_t tt__cuda_set_words(cudaStream_t stream, void *to, const uint64_t *words, size_t n);

#ifdef __cplusplus
}
#endif

#endif
