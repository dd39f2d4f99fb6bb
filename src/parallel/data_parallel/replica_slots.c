#include "parallel/data_parallel/replica_slots.h"

#include "base/error.h"
#include "tensor/core/pool.h"

#include <string.h>

static tt_status no_memory_for_slot(void) {
    return tt__fail(TT_ERR_MEMORY, "tt_data_parallel: no memory to record the call");
}

tt_status tt__replica_slot_add(tt__replica_slots *l, tt_tensor *x, bool is_input) {
    if (l->count == l->room) {
        tt_tensor **more = tt__pool_alloc(((size_t)l->room * 2 + 16) * sizeof *more);
        if (!more)
            return no_memory_for_slot();
        if (l->count)
            memcpy(more, l->tensors, (size_t)l->count * sizeof *more);
        tt__pool_free(l->tensors);
        l->tensors = more;
        l->room = l->room * 2 + 16;
    }
    if (!is_input && !tt__pointer_map_put(&l->at, x, l->count))
        return no_memory_for_slot();
    l->tensors[l->count++] = x;
    return TT_OK;
}
