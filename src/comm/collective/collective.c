/* What the public calls share: checks of arguments. */
#include "comm/collective/collective.h"

#include "comm/op.h"
#include "comm/reduce/reduce_tree.h"

#include <stdlib.h>

tt_status tt__check_call(tt_group *group, const char *name, const void *buf, size_t count, tt_dtype dtype,
                         tt_reduce_op op, int root) {
    TT__TRY(tt__group_usable(group));
    size_t size = tt_dtype_size(dtype);
    if (!size)
        return tt__fail(TT_ERR_INVALID, "%s: expected an element type, got %d", name, (int)dtype);
    if ((unsigned)op > TT_PREMUL_SUM)
        return tt__fail(TT_ERR_INVALID, "%s: expected a reduce op, got %d", name, (int)op);
    if (root < 0 || root >= group->size)
        return tt__fail(TT_ERR_INVALID, "%s: expected a root from 0 to %d, got %d", name, group->size - 1, root);
    if (count > PTRDIFF_MAX / size / (size_t)group->size)
        return tt__fail(TT_ERR_INVALID, "%s: %zu elements of %s are more than memory can hold", name, count,
                        tt_dtype_name(dtype));
    if (!buf && count)
        return tt__fail(TT_ERR_INVALID, "%s: the buffer of %zu elements is NULL", name, count);
    const char *refusal = op == TT_SUM ? NULL : tt__reduce_refusal(dtype, op);
    return refusal ? tt__fail(TT_ERR_UNSUPPORTED, "%s: %s", name, refusal) : TT_OK;
}

static tt_status check_offsets(const tt_group *group, const char *name, const size_t *counts, const size_t *offsets,
                               tt_dtype dtype) {
    size_t most = PTRDIFF_MAX / tt_dtype_size(dtype);
    for (int i = 0; i < group->size; i++)
        if (counts[i] && offsets[i] > most - counts[i])
            return tt__fail(TT_ERR_INVALID, "%s: offset %zu, of rank %d, is beyond what memory can hold", name,
                            offsets[i], i);
    return TT_OK;
}

tt_status tt__check_counts(tt_group *group, const char *name, const void *buf, const size_t *counts,
                           const size_t *offsets, tt_dtype dtype) {
    size_t sum = 0;
    TT__TRY(tt__group_usable(group));
    if (!counts)
        return tt__fail(TT_ERR_INVALID, "%s: a list of counts is NULL", name);
    for (int i = 0; i < group->size; i++) {
        sum += counts[i];
        if (counts[i] > PTRDIFF_MAX || sum > PTRDIFF_MAX)
            return tt__fail(TT_ERR_INVALID, "%s: the counts' sum is more than memory can hold", name);
    }
    TT__TRY(tt__check_call(group, name, buf, sum / (size_t)group->size, dtype, TT_SUM, 0));
    if (!buf && sum)
        return tt__fail(TT_ERR_INVALID, "%s: the buffer of %zu elements is NULL", name, sum);
    return offsets ? check_offsets(group, name, counts, offsets, dtype) : TT_OK;
}

static tt_status check_blocks(tt_group *group, const tt_call *call, const void *buf) {
    return tt__check_call(group, tt_op_name(call->op), buf, call->count, call->dtype, TT_SUM, call->root);
}

/* First the buffer that every rank has, then the one that may be the root's alone. */
tt_status tt__submit_blocks(tt_group *group, tt_call *call, tt_work **work) {
    bool has_root = tt__op_is(call->op, TT__OP_ROOT), from_root = call->op == TT_OP_SCATTER;
    if (work)
        *work = NULL;
    TT__TRY(check_blocks(group, call, from_root ? call->recv : call->send));
    if (!has_root || group->rank == call->root)
        TT__TRY(check_blocks(group, call, from_root ? call->send : call->recv));
    call->timeout_ms = tt__timeout_of(group, call->timeout_ms);
    return tt__submit(group, call, work);
}

const size_t *tt__offsets_of(tt_group *group, int which, const size_t *counts) {
    size_t n = (size_t)group->size;
    if (!group->offsets && !(group->offsets = calloc(2 * n, sizeof *group->offsets)))
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a list of %zu offsets", n);
    size_t *offsets = group->offsets + (which ? n : 0);
    for (size_t r = 0, at = 0; r < n; at += counts[r++])
        offsets[r] = at;
    return offsets;
}
