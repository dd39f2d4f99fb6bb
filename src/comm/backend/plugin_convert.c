/* Conversions around an engine's call for types and ops that it lacks, in memory of the host: scaling for averages and
 * factors, dividing for averages of integers, 16-bit floats summed in f32, bools as bytes of 0 and 1. */
#include "base/error.h"
#include "comm/backend/plugin.h"
#include "comm/reduce/reduce_tree.h"

#include <stdio.h>
#include <stdlib.h>

static bool convert_is_float(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64; }

/* Does an engine take the call? Without a supports() function it takes what tutti/backend.h says. */
static bool takes(const tt_backend *table, tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, tt_device_type device) {
    if (table->supports)
        return table->supports(op, dtype, reduce_op, device);
    if (!tt__op_is(op, TT__OP_REDUCES))
        return true;
    if (dtype == TT_F16 || dtype == TT_BF16 || dtype == TT_BOOL)
        return false;
    return reduce_op <= TT_MAX ? reduce_op != TT_AVG : reduce_op <= TT_BXOR && !convert_is_float(dtype);
}

/* The type and the op by which the engine carries out a reduction. */
static tt_dtype dtype_there(tt_dtype dtype) { return dtype == TT_BOOL ? TT_U8 : tt__partial_dtype(dtype); }

static tt_reduce_op op_there(tt_dtype dtype, tt_reduce_op op) {
    if (op == TT_AVG || op == TT_PREMUL_SUM)
        return TT_SUM;
    if (dtype != TT_BOOL)
        return op;
    return op == TT_SUM || op == TT_MAX ? TT_BOR : op == TT_PRODUCT || op == TT_MIN ? TT_BAND : op;
}

/* Does the engine take this kind of call? We convert only memory of the host. */
static tt_status check_kind(const tt_group *group, tt_op op, tt_dtype dtype, tt_reduce_op reduce_op,
                            tt_device_type device) {
    const tt_backend *table = tt__plugin_of(group)->table;
    char place[64] = "";
    if (!table->begin[op])
        return tt__fail(TT_ERR_UNSUPPORTED, "back end %s has no %s", table->name, tt_op_name(op));
    if (takes(table, op, dtype, reduce_op, device))
        return TT_OK;
    if (device == TT_DEVICE_CPU && tt__op_is(op, TT__OP_REDUCES) &&
        takes(table, op, dtype_there(dtype), op_there(dtype, reduce_op), device))
        return TT_OK;
    if (device != TT_DEVICE_CPU)
        snprintf(place, sizeof place, " in memory of %s. Copy it to the host", tt_device_type_name(device));
    if (tt__op_is(op, TT__OP_REDUCES))
        return tt__fail(TT_ERR_UNSUPPORTED, "back end %s has no %s of %s by %s%s", table->name, tt_op_name(op),
                        tt_dtype_name(dtype), tt_reduce_op_name(reduce_op), place);
    return tt__fail(TT_ERR_UNSUPPORTED, "back end %s has no %s of %s%s", table->name, tt_op_name(op),
                    tt_dtype_name(dtype), place);
}

tt_status tt__plugin_check_call(const tt_group *group, const tt_call *call) {
    switch (call->op) {
    case TT_OP_ALL_REDUCE_COALESCED:
        return check_kind(group, TT_OP_ALL_REDUCE, call->dtype, call->reduce_op, call->device);
    case TT_OP_BATCH_ISEND_IRECV:
        for (int64_t i = 0; i < call->buffers; i++)
            TT__TRY(check_kind(group, call->ops[i].is_recv ? TT_OP_RECV : TT_OP_SEND, call->ops[i].dtype, TT_SUM,
                               call->device));
        return TT_OK;
    case TT_OP_MONITORED_BARRIER:
        if (group->size == 1 || tt__plugin_of(group)->control)
            return TT_OK;
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "back end %s has no monitored_barrier where nothing watches the ranks: TT_BACKEND_CHECK is 0, "
                        "or they can't reach each other",
                        tt__plugin_of(group)->table->name);
    default:
        return check_kind(group, call->op, call->dtype, call->reduce_op, call->device);
    }
}

/* Count the elements of a reduction's input. */
static size_t input_count(const tt_group *group, const tt_call *call) {
    return (size_t)call->count * (call->op == TT_OP_REDUCE_SCATTER ? (size_t)group->size : 1);
}

static tt_status take_memory(tt__call_part *part, size_t bytes) {
    part->memory = malloc(bytes);
    return part->memory ? TT_OK
                        : tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes of %s", bytes, tt_op_name(part->call.op));
}

static void come_back(tt__call_part *part, const void *from, void *to, tt_dtype dtype) {
    part->from = from;
    part->to = to;
    part->count = part->call.count;
    part->dtype = dtype;
}

/* Give the result memory of its own: in reduce_scatter it may lie in the input, which engines don't allow. */
static tt_status part_from_overlap(tt__call_part *part, const tt_group *group, const tt_call *call) {
    size_t size = tt_dtype_size(call->dtype), bytes = input_count(group, call) * size;
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (call->op != TT_OP_REDUCE_SCATTER || recv < send || recv - send >= bytes)
        return TT_OK;
    TT__TRY(take_memory(part, call->count * size));
    part->call.recv = part->memory;
    come_back(part, part->memory, call->recv, call->dtype);
    return TT_OK;
}

/* Convert the input to memory of the part's own; the result comes behind it, or in place. */
static tt_status part_from_copy(tt__call_part *part, const tt_group *group, const tt_call *call, double scale) {
    tt_dtype dtype = part->call.dtype;
    size_t n = input_count(group, call), size = tt_dtype_size(dtype);
    bool scatter = call->op == TT_OP_REDUCE_SCATTER;
    TT__TRY(take_memory(part, (n + (scatter ? call->count : 0)) * size));
    tt__reduce_leaf(part->memory, call->send, n, call->dtype, scale);
    part->call.send = part->memory;
    part->call.recv = scatter ? (unsigned char *)part->memory + n * size : part->memory;
    if (call->op != TT_OP_REDUCE || call->root == group->rank)
        come_back(part, part->call.recv, call->recv, call->dtype);
    return TT_OK;
}

tt_status tt__part_make(tt__call_part *part, const tt_group *group, const tt_call *call) {
    const tt__plugin *plugin = tt__plugin_of(group);
    *part = (tt__call_part){.call = *call, .source = -1, .divisor = 1};
    if (call->device != TT_DEVICE_CPU)
        return tt__plugin_reason(plugin->table,
                                 plugin->table->stream_mark(plugin->engine, &part->call, &part->call.mark));
    if (!tt__op_is(call->op, TT__OP_REDUCES))
        return TT_OK;
    if (takes(plugin->table, call->op, call->dtype, call->reduce_op, TT_DEVICE_CPU))
        return part_from_overlap(part, group, call);
    double scale = tt__leaf_scale(call->dtype, call->reduce_op, group->size, call->factor);
    part->divisor = tt__root_divisor(call->dtype, call->reduce_op, group->size);
    part->call.dtype = dtype_there(call->dtype);
    part->call.reduce_op = op_there(call->dtype, call->reduce_op);
    if (call->op == TT_OP_ALL_REDUCE && part->call.dtype == call->dtype) { /* scaled where it lies */
        tt__reduce_leaf(call->recv, call->send, call->count, call->dtype, scale);
        if (part->divisor != 1)
            come_back(part, call->recv, call->recv, call->dtype);
        return TT_OK;
    }
    return part_from_copy(part, group, call, scale);
}

void tt__part_finish(const tt__call_part *part) {
    if (part->to)
        tt__reduce_round(part->to, part->from, part->count, part->dtype, part->divisor);
}
