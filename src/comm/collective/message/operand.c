/* The memory of machines, and coalesced calls: their buffers are packed one after the other at the beginning of the
 * work's scratch memory, and every algorithm of all_reduce runs on that. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

#include <string.h>

static size_t packed_count(const tt_call *call) {
    size_t count = 0;
    for (int64_t i = 0; i < call->buffers; i++)
        count += call->recv_counts[i];
    return count;
}

static bool is_packed(const tt_work *work) { return work->call.op == TT_OP_ALL_REDUCE_COALESCED; }

static size_t packed_bytes(const tt_work *work) {
    return is_packed(work) ? TT__ALIGN_UP(packed_count(&work->call) * tt_dtype_size(work->call.dtype), 64) : 0;
}

/* Copy between the call's buffers and where they are packed. */
static void copy_packed(const tt_work *work, bool pack) {
    unsigned char *packed = work->scratch;
    for (int64_t i = 0; i < work->call.buffers; i++) {
        size_t bytes = work->call.recv_counts[i] * tt_dtype_size(work->call.dtype);
        if (bytes)
            memcpy(pack ? packed : work->call.bufs[i], pack ? work->call.bufs[i] : packed, bytes);
        packed += bytes;
    }
}

tt_status tt__machine_scratch(tt_work *work, size_t bytes) {
    TT__TRY(tt__work_scratch(work, packed_bytes(work) + bytes));
    if (is_packed(work))
        copy_packed(work, true);
    return TT_OK;
}

void tt__unpack(const tt_work *work) {
    if (is_packed(work))
        copy_packed(work, false);
}

unsigned char *tt__machine_memory(const tt_work *work) { return (unsigned char *)work->scratch + packed_bytes(work); }

tt__operand tt__operand_of(const tt_work *work) {
    if (!is_packed(work))
        return (tt__operand){work->call.recv, work->call.count};
    return (tt__operand){work->scratch, packed_count(&work->call)};
}
