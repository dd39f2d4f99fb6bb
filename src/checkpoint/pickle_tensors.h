/* Tensors in a pickle: what the functions that rebuild them do here. */
#ifndef TT_CHECKPOINT_PICKLE_TENSORS_H
#define TT_CHECKPOINT_PICKLE_TENSORS_H

#include "checkpoint/pickle.h"

/* (storage, offset, sizes, strides, requires_grad, hooks): a tensor over the storage. */
tt_status tt__pickle_rebuild_tensor(tt__pickle *p, const tt_value *args, tt_value **out);

/* The same with an element type, over bytes. */
tt_status tt__pickle_rebuild_tensor_typed(tt__pickle *p, const tt_value *args, tt_value **out);

/* (tensor, requires_grad, hooks): the tensor. */
tt_status tt__pickle_rebuild_parameter(tt__pickle *p, const tt_value *args, tt_value **out);

#endif
