/* Values as the pickle of a .pt file: protocol 2, and only opcodes that torch.load(weights_only=True) takes. */
#ifndef TT_CHECKPOINT_PICKLE_WRITE_H
#define TT_CHECKPOINT_PICKLE_WRITE_H

#include "base/bytes.h"
#include "checkpoint/value.h"

/* Tensors whose elements become records, each once: number i is data/i. */
typedef struct tt__pickled_tensors {
    size_t count, room;
    tt_tensor **tensor; /* borrowed */
} tt__pickled_tensors;

/* Append the pickle of `value` to `to`, which is the caller's to free, as tensors->tensor is, also after a failure. */
tt_status tt__pickle_write(tt__bytes *to, tt__pickled_tensors *tensors, const tt_value *value);

#endif
