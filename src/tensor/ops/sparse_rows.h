/* Some rows of a matrix: their numbers (n) i64, ascending, each once, and their values (n, C). On a device that is not
 * the host the calls read the numbers, and so wait for it; values stay there. */
#ifndef TT_TENSOR_SPARSE_ROWS_H
#define TT_TENSOR_SPARSE_ROWS_H

#include "tensor/core/tensor.h"

/* Sum gradients of the same row: index (N) i64 and g (N, C), contiguous, become *rows (n), ascending, each once, and
 * *values (n, C), where values[k] is the sum, in the order of i, of all g[i] whose index[i] is rows[k]. Row `skipped`
 * is left out; -1: none. Both are new tensors of the scope. */
tt_status tt__rows_coalesce(const char *who, const tt_tensor *index, const tt_tensor *g, int64_t skipped,
                            tt_tensor **rows, tt_tensor **values);

/* Add *rows and *values to had_rows and had: the union of both, new tensors, in *rows and *values. A row of both is
 * had's plus the other. */
tt_status tt__rows_add(const char *who, const tt_tensor *had_rows, const tt_tensor *had, tt_tensor **rows,
                       tt_tensor **values);

#endif
