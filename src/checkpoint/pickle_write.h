/* Values as the pickle of a .pt file: protocol 2, and only opcodes that torch.load(weights_only=True) takes. */
#ifndef TT_CHECKPOINT_PICKLE_WRITE_H
#define TT_CHECKPOINT_PICKLE_WRITE_H

#include "base/bytes.h"
#include "checkpoint/value.h"

/* Tensors whose elements become records, each once: number i is data/i. */
typedef struct tt__pickled_tensors {
    size_t count, room;
    tt_tensor **tensor; /* borrowed */
    uint32_t *slot;     /* a hash table by address: a number plus one, 0 where it is free */
    size_t slots;       /* a power of two, at least 2 * room */
} tt__pickled_tensors;

/* Append the pickle of `value` to `to`. The caller frees `to` and `tensors`, also after a failure. */
tt_status tt__pickle_write(tt__bytes *to, tt__pickled_tensors *tensors, const tt_value *value);

void tt__pickled_tensors_free(tt__pickled_tensors *tensors);

#endif
