#include "tensor/ops/staged.h"

/* ---- images */

tt_tensor *tt__empty_in_format(const char *who, const tt_tensor *x, tt_shape shape, tt_dtype dtype,
                               tt_memory_format format) {
    int64_t stride[4];
    tt__format_strides(&shape, format, stride);
    return tt__tensor_new_on(who, tt__device_of(x), shape, dtype, stride);
}

/* Return x if it lies in this format, else a copy that does, which tt__contiguous_done() frees. */
static tt_tensor *in_format_begin(const char *who, const tt_tensor *x, tt_memory_format format) {
    if (tt__lies_as(x, format))
        return (tt_tensor *)x;
    tt_tensor *copy = tt__empty_in_format(who, x, x->shape, x->dtype, format);
    return copy && tt__copy_out(who, copy, x) ? tt__abandon(copy) : copy;
}

static tt_tensor *stage_add(tt__staged *s, const tt_tensor *given, tt_tensor *used, tt_tensor *written) {
    s->failed = s->failed || !used;
    if (used) {
        s->operand[s->n].given = given;
        s->operand[s->n].written = written;
        s->operand[s->n++].used = used;
    }
    return used;
}

const tt_tensor *tt__stage_image(tt__staged *s, const tt_tensor *x, tt_memory_format format) {
    return !x || s->failed ? NULL : stage_add(s, x, in_format_begin(s->who, x, format), NULL);
}

const tt_tensor *tt__stage_plain(tt__staged *s, const tt_tensor *x) {
    return !x || s->failed ? NULL : stage_add(s, x, tt__contiguous_begin(s->who, x), NULL);
}

static tt_tensor *result_for(const char *who, tt_tensor *y, tt_memory_format format) {
    if (y->shape.ndim != 4)
        return y->contiguous ? y : tt__empty_beside(who, y, y->shape, y->dtype);
    return tt__lies_as(y, format) ? y : tt__empty_in_format(who, y, y->shape, y->dtype, format);
}

tt_tensor *tt__stage_result(tt__staged *s, tt_tensor *y, tt_memory_format format) {
    return !y || s->failed ? NULL : stage_add(s, y, result_for(s->who, y, format), y);
}

tt_status tt__staged_end(tt__staged *s, tt_status status) {
    for (int i = 0; i < s->n && !status; i++)
        if (s->operand[i].written && s->operand[i].used != s->operand[i].given)
            status = tt__copy_out(s->who, s->operand[i].written, s->operand[i].used);
    while (s->n > 0) {
        s->n--;
        tt__contiguous_done(s->operand[s->n].used, s->operand[s->n].given);
    }
    return status;
}

/* ---- contiguous operands */

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
