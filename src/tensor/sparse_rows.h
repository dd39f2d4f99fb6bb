/* Some rows of a matrix: their numbers (n) i64, ascending, each once, and their values (n, C); on the host. */
#ifndef TT_TENSOR_SPARSE_ROWS_H
#define TT_TENSOR_SPARSE_ROWS_H

#include "tensor/tensor.h"

/* Sum what lies at the same row: row index[i] is given g[i], for index (N) and g (N, C), contiguous; `skipped` (-1:
 * none) is left out. Sums are in the order of i, as tt__index_add_out()'s are. */
tt_status tt__rows_coalesce(const char *who, const tt_tensor *index, const tt_tensor *g, int64_t skipped,
                            tt_tensor **rows, tt_tensor **values);

/* Add others, *rows and *values, to those that there are; in their place come new tensors. What both have is the sum of
 * the two. */
tt_status tt__rows_add(const char *who, const tt_tensor *had_rows, const tt_tensor *had, tt_tensor **rows,
                       tt_tensor **values);

#endif
