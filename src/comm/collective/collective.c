/* What the collectives share: names of reduce ops, and shares of a buffer. */
#include "comm/collective/collective.h"

const char *tt_reduce_op_name(tt_reduce_op op) {
    static const char *const names[] = {[TT_SUM] = "sum", [TT_AVG] = "avg",   [TT_PRODUCT] = "product",
                                        [TT_MIN] = "min", [TT_MAX] = "max",   [TT_BAND] = "band",
                                        [TT_BOR] = "bor", [TT_BXOR] = "bxor", [TT_PREMUL_SUM] = "premul_sum"};
    return (unsigned)op < sizeof names / sizeof *names ? names[op] : "?";
}

tt__slice tt__slice_of(size_t count, tt_dtype dtype, int world, int r) {
    size_t n = (size_t)world, line = (size_t)64 >> __builtin_ctzl(tt_dtype_size(dtype));
    bool is_power = !(n & (n - 1)); /* divisions cost as much as the rest of a small call */
    size_t parts = is_power ? (count + n - 1) >> __builtin_ctzl(n) : (count + n - 1) / n;
    size_t share = TT__ALIGN_UP(parts, line);
    size_t at = share * (size_t)r;
    if (at >= count)
        return (tt__slice){count, 0};
    return (tt__slice){at, count - at < share ? count - at : share};
}
