/* The inputs of a call of replicas, in the order of slots. */
#ifndef TT_PARALLEL_DATA_PARALLEL_REPLICA_SLOTS_H
#define TT_PARALLEL_DATA_PARALLEL_REPLICA_SLOTS_H

#include "autograd/pointer_map.h"

#include <tutti/tensor.h>

/* Zeroed, it is empty. tt__pool_free(tensors) and tt__pointer_map_free(&at) end it. */
typedef struct tt__replica_slots {
    tt_tensor **tensors; /* borrowed */
    int64_t count, room;
    tt__pointer_map at; /* those behind the inputs */
} tt__replica_slots;

tt_status tt__replica_slot_add(tt__replica_slots *slots, tt_tensor *x, bool is_input);

#endif
