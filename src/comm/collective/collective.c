/* What the collectives share: checks of arguments, and shares of a buffer. */
#include "comm/collective/collective.h"

#include "base/error.h"

const char *tt_reduce_op_name(tt_reduce_op op) {
    static const char *const names[] = {[TT_SUM] = "sum", [TT_AVG] = "avg",   [TT_PRODUCT] = "product",
                                        [TT_MIN] = "min", [TT_MAX] = "max",   [TT_BAND] = "band",
                                        [TT_BOR] = "bor", [TT_BXOR] = "bxor", [TT_PREMUL_SUM] = "premul_sum"};
    return (unsigned)op < sizeof names / sizeof *names ? names[op] : "?";
}

tt_status tt__check_call(tt_group *group, const char *name, const void *buf, size_t count, tt_dtype dtype,
                         tt_reduce_op op, int root) {
    TT__TRY(tt__group_usable(group));
    size_t size = tt_dtype_size(dtype);
    if (!size)
        return tt__fail(TT_ERR_INVALID, "%s: expected an element type, got %d", name, (int)dtype);
    if ((unsigned)op > TT_PREMUL_SUM)
        return tt__fail(TT_ERR_INVALID, "%s: expected a reduce op, got %d", name, (int)op);
    if (root < 0 || root >= group->world)
        return tt__fail(TT_ERR_INVALID, "%s: expected a root from 0 to %d, got %d", name, group->world - 1, root);
    if (count > PTRDIFF_MAX / size / (size_t)group->world)
        return tt__fail(TT_ERR_INVALID, "%s: %zu elements of %s are more than memory can hold", name, count,
                        tt_dtype_name(dtype));
    if (!buf && count)
        return tt__fail(TT_ERR_INVALID, "%s: the buffer of %zu elements is NULL", name, count);
    if (dtype > TT_U8)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: elements of %s are not supported yet", name, tt_dtype_name(dtype));
    if (op > TT_MAX)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: the reduce op %s is not supported yet", name, tt_reduce_op_name(op));
    if (op == TT_AVG && dtype != TT_F32 && dtype != TT_F64)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: an average of %s would have to round; use TT_SUM and divide", name,
                        tt_dtype_name(dtype));
    return TT_OK;
}

tt__slice tt__slice_of(size_t count, tt_dtype dtype, int world, int r) {
    size_t line = 64 / tt_dtype_size(dtype), n = (size_t)world;
    size_t share = TT__ALIGN_UP(count / n + (count % n != 0), line);
    size_t at = share * (size_t)r;
    if (at >= count)
        return (tt__slice){count, 0};
    return (tt__slice){at, count - at < share ? count - at : share};
}
