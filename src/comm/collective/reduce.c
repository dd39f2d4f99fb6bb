/* reduce: as all_reduce, but the result goes to the root alone. The same three algorithms, chosen alike. */
#include "base/error.h"
#include "comm/collective/collective.h"

tt_status tt__reduce_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, int root,
                        const char *file, int line) {
    const tt__call call = {TT__OP_REDUCE, dtype, op, root, count, file, line};
    const tt__reduction reduction = {buf, count, dtype, op, root};
    size_t bytes = count * tt_dtype_size(dtype);
    bool symmetric;
    TT__TRY(tt__check_call(group, "reduce", buf, count, dtype, op, root));
    TT__TRY(tt__work_drain(group));
    if (bytes <= TT__INLINE_MAX) {
        TT__TRY(tt__meet(group, &call, buf, bytes, NULL, &symmetric));
        tt__reduce_inline(group, &reduction, group->seq);
        return TT_OK;
    }
    TT__TRY(tt__meet(group, &call, NULL, 0, tt__in_heap(group, buf, bytes) ? buf : NULL, &symmetric));
    if (group->world == 1)
        return TT_OK;
    if (!symmetric)
        return tt__reduce_staged(group, &reduction);
    uint32_t step = tt__plan_steps(group, 1) + 1;
    tt__reduce_symmetric(group, &reduction, group->seq);
    tt__finish_step(group, step);
    return tt__wait_steps(group, step);
}
