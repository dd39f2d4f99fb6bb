/* Walks several strided arrays of one shape together, a row at a time. Dimensions are taken in the order of the first
 * array's memory, and those that every array can cross with one stride are joined, so that arrays of one layout,
 * whatever it is, are one row.
 *
 *   for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
 *       it.n elements from it.p[k] with stride it.step[k] (in elements)... */
#ifndef TT_TENSOR_ITER_H
#define TT_TENSOR_ITER_H

#include <tutti/tensor.h>

enum { TT__ITER_MAX = 4 };

typedef struct tt__iter {
    bool more;
    int64_t n;                  /* elements of a row */
    int64_t step[TT__ITER_MAX]; /* in elements */
    char *p[TT__ITER_MAX];
    int arrays, ndim; /* outer dimensions */
    int64_t dim[TT_MAX_DIMS], at[TT_MAX_DIMS];
    int64_t jump[TT__ITER_MAX][TT_MAX_DIMS]; /* in bytes */
} tt__iter;

/* Begin a walk over tensors of one shape, in the first one's memory order; and in row-major order of the shape,
 * whatever the layout. An element is broadcast where its tensor's stride is 0. At most TT__ITER_MAX tensors. */
tt__iter tt__iter_over(int n, const tt_tensor *const *tensors);
tt__iter tt__iter_row_major(int n, const tt_tensor *const *tensors);
void tt__iter_next(tt__iter *it);
#define TT__ITER_OVER(...)                                                                 \
    tt__iter_over((int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                  (const tt_tensor *[]){__VA_ARGS__})

/* Have tensors of one shape one dense layout, so that they are `numel` elements from `data` on, one beside the
 * other? */
bool tt__is_flat(int n, const tt_tensor *const *tensors);
#define TT__IS_FLAT(...)                                                                 \
    tt__is_flat((int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                (const tt_tensor *[]){__VA_ARGS__})

#endif
