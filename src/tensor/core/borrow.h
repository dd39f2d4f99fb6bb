/* Tensors over memory that somebody else has, on any device. */
#ifndef TT_TENSOR_BORROW_H
#define TT_TENSOR_BORROW_H

#include "tensor/core/tensor.h"

/* Make one over memory of the device, as tt_from_blob() does over the host's. */
tt_tensor *tt__tensor_borrow(const char *who, const tt_device *device, void *data, tt_shape shape, tt_dtype dtype);

/* Do as tt__tensor_set_data(), with the values; on failure x stays as it is. */
tt_status tt__tensor_move(const char *who, tt_tensor *x, void *data);

#endif
