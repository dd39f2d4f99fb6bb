#include "base/args.h"
#include "tensor/ops/ops.h"

static tt_tensor *any_of(const char *who, const tt_any_args *args, size_t size, bool all) {
    tt_any_args o;
    tt__reduction r;
    TT__ARGS_COPY(o, args, size);
    if (!o.x || !tt__tensor_check(who, o.x))
        return NULL;
    if (tt__reduction_of(who, &r, o.x, &o.dim, o.keepdim))
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    tt_tensor *y = tt__reduction_result(who, o.x, &r, TT_BOOL);
    if (!y)
        return NULL;
    tt_tensor wide = tt__reduction_spread(y, &r, &o.x->shape);
    tt_status status = o.x->numel ? tt__any_out(who, &wide, o.x, all) : tt__fill_out(who, y, all);
    return status ? tt__abandon(y) : y;
}

tt_tensor *tt_any_with(const tt_any_args *args, size_t size) { return any_of("tt_any", args, size, false); }

tt_tensor *tt_all_with(const tt_any_args *args, size_t size) { return any_of("tt_all", args, size, true); }
