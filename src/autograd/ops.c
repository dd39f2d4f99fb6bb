#include "autograd/ops.h"

#include "tensor/cpu/kernels.h"

#include <stdio.h>

bool tt__check_floats(const char *who, int n, const tt__named *x) {
    bool fits = tt__is_float(x[0].x->dtype);
    char text[640];
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        if (!x[i].x)
            continue;
        fits = fits && x[i].x->dtype == x[0].x->dtype;
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", i ? ", " : "", x[i].name,
                                     TT__DESCRIBE(x[i].x));
    }
    if (!fits)
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected f32 or f64%s, got %s", who, n > 1 ? ", the same for all" : "",
                        text);
    return fits;
}

tt_tensor *tt__ops_contiguous(const char *who, tt_tensor *x) { return x->contiguous ? x : tt__clone(who, x); }

void tt__ops_done(tt_tensor *copy, const tt_tensor *x) {
    if (copy != x)
        tt__abandon(copy);
}

tt__matrix tt__ops_matrix(const tt_tensor *x) {
    return (tt__matrix){x->data, x->shape.dim[0], x->shape.dim[1], x->stride[0], x->stride[1]};
}

void tt__ops_scale(tt_dtype dtype, int64_t n, const void *src, double factor, tt__grad_to to) {
    if (dtype == TT_F32) {
        tt__elementwise()->scale(n, src, (float)factor, to.data, to.accumulate);
        return;
    }
    const double *x = src;
    double *y = to.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = (to.accumulate ? y[i] : 0) + x[i] * factor;
}
