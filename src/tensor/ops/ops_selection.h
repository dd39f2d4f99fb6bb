/* Comparisons and choices, element by element; see ops.h. */
#ifndef TT_TENSOR_OPS_SELECTION_H
#define TT_TENSOR_OPS_SELECTION_H

#include "tensor/kernels/kernels.h"

/* a and b are spread to the shape of y, bools. */
tt_status tt__compare_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, tt__comparison op);

/* condition, a and b are spread to y's shape. */
tt_status tt__where_out(const char *who, tt_tensor *y, const tt_tensor *condition, const tt_tensor *a,
                        const tt_tensor *b);

/* y := value where mask is `when`, else x; both are spread to y's shape. */
tt_status tt__masked_fill_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when,
                              double value);

/* Is `mask`, called `name`, alive, bool, and on x's device? */
bool tt__check_mask(const char *who, const char *name, const tt_tensor *mask, const tt_tensor *x);

/* Are a and b alive, of one dtype, whatever it is, and on one device? Else false, and an error. */
bool tt__check_alike(const char *who, const tt_tensor *a, const tt_tensor *b);

/* Can the element type hold the value, exactly where it is an integer? */
bool tt__dtype_holds(tt_dtype dtype, double value);

#endif
