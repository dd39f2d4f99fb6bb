/* Operations of losses; see ops.h, and kernels_loss.h. Any layout. */
#ifndef TT_TENSOR_OPS_LOSS_H
#define TT_TENSOR_OPS_LOSS_H

#include "tensor/kernels/kernels.h"

/* `loss` and `share` (R) are contiguous. */
tt_status tt__nll_rows_out(const char *who, tt_tensor *loss, tt_tensor *share, const tt_tensor *x, const tt_tensor *t,
                           const tt_tensor *w, const tt__nll *call);
tt_status tt__nll_rows_backward_out(const char *who, tt_tensor *dx, const tt_tensor *t, const tt_tensor *w,
                                    const tt_tensor *g, const tt__nll *call);

/* Are all targets within 0..V-1, or `ignore`? Else TT_ERR_INVALID names the first that is not. *ignored: some are
 * `ignore`, where the kernels of cross_entropy and nll_loss don't pass over them. */
tt_status tt__check_classes(const char *who, const tt_tensor *target, int64_t V, int64_t ignore, bool *ignored);

#endif
