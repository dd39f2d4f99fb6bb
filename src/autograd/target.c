#include "autograd/target.h"

#include "autograd/ops.h"

#include <inttypes.h>

static bool check_shapes(const char *who, const char *name, const tt_tensor *x, const tt_tensor *target) {
    if (x->shape.ndim != 2 || x->numel == 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s (B, V) with B and V at least 1, got %s %s", who, name, name,
                        TT__DESCRIBE(x));
    else if (target->dtype != TT_I64)
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected target i64 (%" PRId64 "), got target %s", who, x->shape.dim[0],
                        TT__DESCRIBE(target));
    else if (target->shape.ndim != 1 || target->shape.dim[0] != x->shape.dim[0])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected target (%" PRId64 ") to match %s %s, got target %s", who,
                        x->shape.dim[0], name, TT__DESCRIBE(x), TT__DESCRIBE(target));
    else
        return true;
    return false;
}

bool tt__check_targets(const char *who, const char *name, const tt_tensor *x, const tt_tensor *target) {
    if (!TT__CHECK_FLOATS(who, {name, x}) || !check_shapes(who, name, x, target))
        return false;
    const int64_t *t = target->data;
    int64_t V = x->shape.dim[1];
    for (int64_t b = 0; b < target->numel; b++) {
        int64_t v = t[b * target->stride[0]];
        if (v < 0 || v >= V) {
            tt__tensor_fail(TT_ERR_INVALID,
                            "%s: expected targets in 0..%" PRId64 ", got target[%" PRId64 "] = %" PRId64, who, V - 1, b,
                            v);
            return false;
        }
    }
    return true;
}
