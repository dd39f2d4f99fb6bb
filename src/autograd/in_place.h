/* Operators that change their first input. It then has the call's history, on top of its own: what was computed from
 * it before goes back to that.
 *
 * Views have histories of their own, which such a call could not reach: where it is to be recorded, x must have a
 * storage of which none was ever made. Backward of anything that needs the old values fails, by the storage's version
 * (tensor.h). */
#ifndef TT_AUTOGRAD_IN_PLACE_H
#define TT_AUTOGRAD_IN_PLACE_H

#include "autograd/record.h"

/* A call that changes inputs[0]. */
typedef struct tt__in_place {
    const tt__operator *op;
    tt_tensor *x;
    tt_node *node; /* NULL: nothing is recorded */
} tt__in_place;

/* Begin it: may x be changed, and is the call to be recorded? Saves are of tensors as they are before. False, and an
 * error: TT_ERR_STATE x is a leaf that requires a gradient, belongs to something, or has views; TT_ERR_INVALID it
 * repeats elements; TT_ERR_MEMORY. */
bool tt__in_place_begin(tt__in_place *call, const tt__operator *op, int n, tt_tensor *const *inputs, int saves,
                        const tt__to_save *save, const void *state, size_t state_bytes);

/* End it: x was written with this status. `save_result`: backward needs it as number `saves`. Returns x; NULL on
 * failure. */
tt_tensor *tt__in_place_end(tt__in_place *call, tt_status status, bool save_result);

#endif
