/* Partial results of a call: which type, which op, and this rank's leaf. The arithmetic is reduce_tree.c's. */
#include "comm/collective/message/partial.h"

#include "comm/reduce/reduce_tree.h"

tt__partial tt__partial_of(const tt_call *call, int ranks) {
    tt__partial partial = {.from = call->dtype, .dtype = tt__partial_dtype(call->dtype), .op = call->reduce_op};
    partial.size = tt_dtype_size(partial.dtype);
    partial.scale = tt__leaf_scale(call->dtype, call->reduce_op, ranks, call->factor);
    partial.divisor = tt__root_divisor(call->dtype, call->reduce_op, ranks);
    if (call->reduce_op == TT_AVG || call->reduce_op == TT_PREMUL_SUM)
        partial.op = TT_SUM;
    partial.as_is = partial.dtype == partial.from && (partial.op == call->reduce_op || partial.divisor != 1) &&
                    partial.from != TT_BOOL;
    return partial;
}

tt__partial tt__wire_of(const tt_call *call, int ranks) {
    if (call->reduce_op == TT_PREMUL_SUM)
        return tt__partial_of(call, ranks);
    return (tt__partial){call->dtype, call->dtype, tt_dtype_size(call->dtype), call->reduce_op, 1, 1, true};
}

void tt__partial_leaf(const tt__partial *partial, void *dst, const void *leaf, size_t count) {
    tt__reduce_leaf(dst, leaf, count, partial->from, partial->scale);
}

void tt__partial_join(const tt__partial *partial, void *dst, const void *left, const void *right, size_t count) {
    tt__reduce_join(dst, left, right, count, partial->from, partial->op);
}

void tt__partial_finish(const tt__partial *partial, void *dst, const void *src, size_t count) {
    tt__reduce_round(dst, src, count, partial->from, partial->divisor);
}
