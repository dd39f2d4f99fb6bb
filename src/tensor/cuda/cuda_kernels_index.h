/* Indexing and order on a CUDA device: cuda_index.cu, cuda_index_add.cu, cuda_sort.cu. See kernels.h. Arrays of
 * a walk are y, x and index, unless said otherwise; indices that are out of range are passed over. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_INDEX_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_INDEX_H

#include "tensor/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of `size` bytes: y = x, index * step elements further, of n places; 0 if it is none of these. */
cudaError_t tt__cuda_gather(cudaStream_t stream, size_t size, const tt__walk *w, int64_t step, int64_t n);

/* Lines of n places, walked without the dimension that is indexed; along it, the strides of x and index. In order: y,
 * index * step elements further, one of `places`, = x; or += x. */
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

#ifdef __cplusplus
}
#endif

#endif
