/* Walks several strided arrays of one shape together, a row (the innermost dimension) at a time. Dimensions that every array can cross with one
 * stride are joined first, so that contiguous arrays are one row.
 *
 *   for (tt__iter it = tt__iter_begin(&shape, 2, ptr, strides); it.more; tt__iter_next(&it))
 *       it.n elements from it.p[k] with stride it.step[k] (in elements)... */
#ifndef TT_TENSOR_ITER_H
#define TT_TENSOR_ITER_H

#include <tutti/tensor.h>

enum { TT__ITER_MAX = 3 };

typedef struct tt__iter {
    bool more;
    int64_t n;                  /* elements of a row */
    int64_t step[TT__ITER_MAX]; /* in elements */
    char *p[TT__ITER_MAX];
    int arrays, ndim; /* outer dimensions */
    int64_t dim[TT_MAX_DIMS], at[TT_MAX_DIMS];
    int64_t jump[TT__ITER_MAX][TT_MAX_DIMS]; /* in bytes */
} tt__iter;

/* `stride[k]`: strides of array k in elements, ndim of them (0 where it is broadcast). `size[k]`: bytes of its elements. */
tt__iter tt__iter_begin(const tt_shape *shape, int arrays, void *const *p, const int64_t *const *stride,
                        const size_t *size);
void tt__iter_next(tt__iter *it);

#endif
