#include "tensor/ops/ops.h"

#include <math.h>

int64_t tt__find_nan(const char *who, const tt_tensor *x) {
    int64_t found = -1;
    int scope = tt_scope_begin();
    const tt_tensor *near = tt__device_is_host(tt__device_of(x)) ? x : tt__to_device(who, x, &tt__cpu_device);
    tt_tensor *wide = near ? tt__to(who, near, TT_F64) : NULL;
    tt_tensor *whole = wide ? tt__contiguous_begin(who, wide) : NULL;
    for (int64_t i = 0; whole && i < x->numel && found < 0; i++)
        if (isnan(((const double *)whole->data)[i]))
            found = i;
    if (whole)
        tt__contiguous_done(whole, wide);
    tt_scope_end(scope);
    return found;
}
