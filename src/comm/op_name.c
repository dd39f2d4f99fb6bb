#include <tutti/backend.h>

const char *tt_op_name(tt_op op) {
    static const char *const names[TT_OPS] = {
        [TT_OP_BARRIER] = "barrier",
        [TT_OP_ALL_REDUCE] = "all_reduce",
        [TT_OP_REDUCE] = "reduce",
        [TT_OP_REDUCE_SCATTER] = "reduce_scatter",
        [TT_OP_BROADCAST] = "broadcast",
        [TT_OP_ALL_GATHER] = "all_gather",
        [TT_OP_ALL_GATHER_V] = "all_gather_v",
        [TT_OP_GATHER] = "gather",
        [TT_OP_SCATTER] = "scatter",
        [TT_OP_ALL_TO_ALL] = "all_to_all",
        [TT_OP_ALL_TO_ALL_V] = "all_to_all_v",
        [TT_OP_SEND] = "send",
        [TT_OP_RECV] = "recv",
        [TT_OP_ALL_REDUCE_COALESCED] = "all_reduce_coalesced",
        [TT_OP_BATCH_ISEND_IRECV] = "batch_isend_irecv",
        [TT_OP_MONITORED_BARRIER] = "monitored_barrier",
        [TT_OP_NEW_GROUP] = "new_group",
        [TT_OP_SPLIT] = "split",
        [TT_OP_ALLOC] = "alloc",
        [TT_OP_FREE] = "free",
    };
    return (unsigned)op < TT_OPS ? names[op] : "?";
}
