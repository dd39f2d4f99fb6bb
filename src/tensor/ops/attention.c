/* Attention: one kernel call for the whole batch, if the device has such a kernel; else one for each matrix, side by
 * side in threads. */
#include "base/error.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>

/* Copies that one call makes: inputs with rows that have gaps, 16-bit floats in f32. */
enum { MAX_STANDINS = 14 };

typedef struct attention_call {
    const char *who;
    tt__any_kernel run;
    tt_tensor *stats, *y, *dq, *dk, *dv;          /* y NULL: backward */
    const tt_tensor *q, *k, *v, *mask, *g, *kept; /* kept: tt__attention's y */
    double scale;
    bool causal;
    _Atomic int status;
} attention_call;

static void attend_some(void *user, int64_t begin, int64_t end) {
    attention_call *c = user;
    for (int64_t i = begin; i < end && !c->status; i++) {
        tt_tensor q = tt__matrix_number(c->q, i), k = tt__matrix_number(c->k, i), v = tt__matrix_number(c->v, i);
        tt_tensor stats = tt__matrix_number(c->stats, i), mask;
        tt__attention in = {.q = &q, .k = &k, .v = &v, .scale = c->scale, .causal = c->causal};
        tt_status status;
        if (c->mask) {
            mask = tt__matrix_number(c->mask, i);
            in.mask = &mask;
        }
        if (!c->y) {
            tt_tensor dq = tt__matrix_number(c->dq, i), dk = tt__matrix_number(c->dk, i);
            tt_tensor dv = tt__matrix_number(c->dv, i), g = tt__matrix_number(c->g, i);
            status = ((tt__kernel_attention_backward)c->run)(&dq, &dk, &dv, &stats, &g, &in);
        } else {
            tt_tensor y = tt__matrix_number(c->y, i);
            status = ((tt__kernel_attention)c->run)(&y, &stats, &in);
        }
        if (status)
            c->status = (int)status;
    }
}

/* TT_ERR_UNSUPPORTED: the device has no kernel for a batch. */
static tt_status attend_batch(const attention_call *c) {
    const tt__kernels *kernels = tt__device_of(c->q)->kernels[c->q->dtype];
    const tt__attention in = {
        .q = c->q, .k = c->k, .v = c->v, .mask = c->mask, .y = c->kept, .scale = c->scale, .causal = c->causal};
    if (!kernels->attention_batch || !kernels->attention_batch_backward)
        return TT_ERR_UNSUPPORTED;
    return c->y ? kernels->attention_batch(c->y, c->stats, &in)
                : kernels->attention_batch_backward(c->dq, c->dk, c->dv, c->stats, c->g, &in);
}

static tt_status attend_all(attention_call *c) {
    int64_t n = tt__batch_size(c->q);
    tt_status status = attend_batch(c);
    if (status != TT_ERR_UNSUPPORTED)
        return status;
    if (tt__device_is_host(tt__device_of(c->q)) && n > 1) {
        tt__parallel_for(n, 1, attend_some, c);
        if (c->status) /* the error's text may be in another thread */
            return tt__fail((tt_status)c->status, "%s: one of %" PRId64 " matrices failed", c->who, n);
        return TT_OK;
    }
    attend_some(c, 0, n);
    return (tt_status)c->status;
}

/* ---- stand-ins */

typedef struct standins {
    const char *who;
    int n;
    tt_tensor *made[MAX_STANDINS];
    bool failed;
} standins;

static tt_tensor *note_standin(standins *s, tt_tensor *x) {
    s->failed = s->failed || !x;
    if (x)
        s->made[s->n++] = x;
    return x;
}

static void drop_standins(standins *s) {
    for (int i = 0; i < s->n; i++)
        tt__abandon(s->made[i]);
}

/* The type that kernels compute x's in: its own where the device has them, else f32. */
static tt_dtype kernel_type(const tt_tensor *x) {
    return tt__device_of(x)->kernels[x->dtype]->attention || x->dtype == TT_F64 ? x->dtype : TT_F32;
}

static bool rows_are_plain(const tt_tensor *x) {
    tt_tensor first = tt__matrix_number(x, 0);
    return x->dtype == kernel_type(x) && tt__matrix_is_stored(&first, 0) && first.stride[1] == 1;
}

/* Return x (NULL stays NULL) in the type of kernels, its rows without gaps. */
static const tt_tensor *plain_rows(standins *s, const tt_tensor *x) {
    if (!x || s->failed || rows_are_plain(x))
        return s->failed ? NULL : x;
    const tt_tensor *in = x->dtype == kernel_type(x) ? x : note_standin(s, tt__to(s->who, x, TT_F32));
    return !in || rows_are_plain(in) ? in : note_standin(s, tt__clone_contiguous(s->who, in));
}

/* Return y (may be NULL) if kernels can write it, else make a contiguous result like `like`. */
static tt_tensor *plain_result(standins *s, tt_tensor *y, const tt_tensor *like) {
    if (s->failed || (y && rows_are_plain(y)))
        return s->failed ? NULL : y;
    return note_standin(s, tt__empty_beside(s->who, like, like->shape, kernel_type(like)));
}

static attention_call begin_call(standins *s, const tt__attention *in) {
    attention_call c = {.who = s->who, .scale = in->scale, .causal = in->causal};
    c.q = plain_rows(s, in->q);
    c.k = plain_rows(s, in->k);
    c.v = plain_rows(s, in->v);
    c.mask = in->mask;
    c.kept = plain_rows(s, in->y);
    return c;
}

/* ---- masks */

static tt_dtype attention_type(const tt_tensor *q) { return q->dtype == TT_F64 ? TT_F64 : TT_F32; }

/* Make a table (2): what is added where a mask is false, and where it is true. */
static tt_tensor *mask_table(const char *who, const tt_tensor *q) {
    tt_tensor *table = tt__empty_beside(who, q, TT_SHAPE(2), attention_type(q));
    if (!table)
        return NULL;
    tt_tensor hidden = tt__tensor_seen(table, TT_SHAPE(1), (const int64_t[]){1});
    return tt__fill_out(who, table, 0) || tt__fill_out(who, &hidden, -INFINITY) ? tt__abandon(table) : table;
}

static tt_tensor *look_up_mask(const char *who, const tt_tensor *mask, const tt_tensor *q) {
    tt_tensor *table = mask_table(who, q), *places = NULL, *y = NULL;
    if (table)
        places = tt__make_places(who, q, mask->shape);
    if (places && !tt__copy_out(who, places, mask))
        y = tt__empty_beside(who, q, mask->shape, attention_type(q));
    if (y) {
        tt_shape flat = {.ndim = 1, .dim = {y->numel}};
        tt_tensor to = tt__tensor_seen(y, flat, (const int64_t[]){1});
        tt_tensor row = tt__tensor_seen(places, flat, (const int64_t[]){1});
        if (tt__index_select_out(who, &to, table, 0, &row))
            y = tt__abandon(y);
    }
    tt__abandon(places);
    tt__abandon(table);
    return y;
}

tt_tensor *tt__additive_mask(const char *who, const tt_tensor *mask, const tt_tensor *q) {
    if (mask->dtype == TT_BOOL)
        return look_up_mask(who, mask, q);
    if (mask->dtype != q->dtype)
        return tt__tensor_fail(TT_ERR_DTYPE, "%s: expected attn_mask bool or %s, got %s", who, tt_dtype_name(q->dtype),
                               TT__DESCRIBE(mask));
    return mask->dtype == attention_type(q) ? (tt_tensor *)mask : tt__to(who, mask, attention_type(q));
}

/* ---- */

tt_tensor *tt__attention_stats(const char *who, const tt_tensor *q) {
    tt_shape shape = q->shape;
    shape.dim[shape.ndim - 1] = 2;
    return tt__empty_beside(who, q, shape, attention_type(q));
}

bool tt__attention_keeps_y(const tt__attention *in) {
    const bool narrow = in->q->dtype == TT_F16 || in->q->dtype == TT_BF16;
    return narrow && !in->mask && !tt__device_is_host(tt__device_of(in->q));
}

tt_status tt__attention_out(const char *who, tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    standins s = {.who = who};
    attention_call c = begin_call(&s, in);
    c.stats = stats;
    c.y = plain_result(&s, y, y);
    c.run = s.failed ? NULL : (tt__any_kernel)TT__KERNEL(who, c.y, attention);
    tt_status status = c.run ? attend_all(&c) : tt_last_status();
    if (!status && c.y != y)
        status = tt__copy_out(who, y, c.y);
    drop_standins(&s);
    return status;
}

tt_status tt__attention_backward_out(const char *who, tt_tensor *const d[3], const tt_tensor *stats, const tt_tensor *g,
                                     const tt__attention *in) {
    const tt_tensor *const inputs[] = {in->q, in->k, in->v};
    standins s = {.who = who};
    attention_call c = begin_call(&s, in);
    c.g = plain_rows(&s, g);
    c.stats = (tt_tensor *)stats;
    tt_tensor *made[3];
    for (int i = 0; i < 3; i++)
        made[i] = plain_result(&s, d[i], inputs[i]);
    c.dq = made[0];
    c.dk = made[1];
    c.dv = made[2];
    c.run = s.failed ? NULL : (tt__any_kernel)TT__KERNEL(who, c.dq, attention_backward);
    tt_status status = c.run ? attend_all(&c) : tt_last_status();
    for (int i = 0; i < 3 && !status; i++)
        if (d[i] && d[i] != made[i])
            status = tt__copy_out(who, d[i], made[i]);
    drop_standins(&s);
    return status;
}
