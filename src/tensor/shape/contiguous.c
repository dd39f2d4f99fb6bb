#include "tensor/shape/contiguous.h"

#include "base/error.h"

tt__operands tt__operands_begin(const char *who, size_t offset, const char *name, tt_tensor *y, int n,
                                const tt_tensor *const *in) {
    tt__operands o = {.who = who, .n = n, .given_y = y, .kernel = tt__kernel_find(who, y, offset, name)};
    if (!o.kernel || !tt__same_device(who, n, in) || !TT__SAME_DEVICE(who, y, in[0])) {
        o.n = 0;
        o.status = tt_last_status();
        return o;
    }
    o.y = y->contiguous ? y : tt__empty_beside(who, y, y->shape, y->dtype);
    bool all = o.y != NULL;
    for (int i = 0; i < n; i++) {
        o.given[i] = in[i];
        o.in[i] = all && in[i] ? tt__contiguous_begin(who, in[i]) : NULL;
        all = all && (o.in[i] || !in[i]);
    }
    o.status = all ? TT_OK : tt_last_status();
    return o;
}

tt_status tt__operands_end(tt__operands *o, tt_status status) {
    status = o->status ? o->status : status;
    if (!status && o->y != o->given_y)
        status = tt__copy_out(o->who, o->given_y, o->y);
    for (int i = o->n; i-- > 0;)
        tt__contiguous_done(o->in[i], o->given[i]);
    tt__contiguous_done(o->y, o->given_y);
    return status;
}
