/* Operations that reduce dimensions; see ops.h. */
#ifndef TT_TENSOR_OPS_REDUCTION_H
#define TT_TENSOR_OPS_REDUCTION_H

#include "tensor/kernels/kernels.h"

/* Which dimensions of a tensor are reduced, and what becomes of them. */
typedef struct tt__reduction {
    unsigned dims; /* bit d: dimension d is */
    bool keepdim;  /* they stay, with size 1 */
    int64_t count; /* elements that become one */
} tt__reduction;

/* Read which: none are all. TT_ERR_SHAPE one that x lacks, or twice; TT_ERR_INVALID an impossible number of them. */
tt_status tt__reduction_of(const char *who, tt__reduction *r, const tt_tensor *x, const tt_dims *dims, bool keepdim);

/* Make the result: x's shape without what is reduced, on its device, contiguous. */
tt_tensor *tt__reduction_result(const char *who, const tt_tensor *x, const tt__reduction *r, tt_dtype dtype);

/* Make a tensor of indices (i64) of the shape of y, a result. */
tt_tensor *tt__index_like(const char *who, const tt_tensor *y);

/* View y, a result or its gradient, of any layout, spread over the shape of what was reduced. */
tt_tensor tt__reduction_spread(const tt_tensor *y, const tt__reduction *r, const tt_shape *shape);

/* y as tt__reduction_spread() gives it. y := factor * sum of x; the variance; the p-norm, and its gradient. */
tt_status tt__sum_spread_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__var_out(const char *who, tt_tensor *y, const tt_tensor *x, double correction);
tt_status tt__norm_out(const char *who, tt_tensor *y, const tt_tensor *x, double p);
tt_status tt__norm_backward_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                                const tt_tensor *g, double p);
tt_status tt__any_out(const char *who, tt_tensor *y, const tt_tensor *x, bool all);

/* See kernels_reduction.h; y and index are contiguous; of share_equal y and g are spread as above. */
tt_status tt__extreme_out(const char *who, tt_tensor *y, tt_tensor *index, const tt_tensor *x, int dim, bool largest);
tt_status tt__extreme_backward_out(const char *who, tt_tensor *dx, const tt_tensor *index, const tt_tensor *g, int dim);
tt_status tt__share_equal_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                              const tt_tensor *g, bool nan_equals);

/* Any layout, along the last dimension. */
tt_status tt__softmax_out(const char *who, tt_tensor *y, const tt_tensor *x);
tt_status tt__softmax_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

#endif
