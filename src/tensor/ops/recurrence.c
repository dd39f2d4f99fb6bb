/* Recurrent layers over time: a product and a kernel for each step, forward and backward. */

#include "base/error.h"
#include "tensor/ops/ops.h"

/* View n steps of x (T,B,C) from number t on as one matrix. */
static tt_tensor time_steps(const tt_tensor *x, int64_t t, int64_t n) {
    int64_t B = x->shape.dim[1], C = x->shape.dim[2];
    tt_tensor steps = tt__tensor_seen(x, TT_SHAPE(n * B, C), (const int64_t[]){C, 1});
    steps.data = (char *)x->data + t * B * C * (int64_t)tt_dtype_size(x->dtype);
    return steps;
}

tt_tensor tt__time_step(const tt_tensor *x, int64_t t) { return time_steps(x, t, 1); }

/* View the first columns of a matrix. */
static tt_tensor first_columns(const tt_tensor *x, int64_t columns) {
    return tt__tensor_seen(x, TT_SHAPE(x->shape.dim[0], columns), x->stride);
}

/* The tensors of one step. */
typedef struct rnn_step {
    tt_tensor y, gates, h, c, c_next;
} rnn_step;

/* Look at step number i in the order of time. */
static void look_at_step(rnn_step *s, const tt__rnn *r, int64_t i) {
    int64_t T = r->y->shape.dim[0], t = r->reverse ? T - 1 - i : i, before = r->reverse ? t + 1 : t - 1;
    s->y = tt__time_step(r->y, t);
    s->gates = r->gates ? tt__time_step(r->gates, t) : s->y;
    s->h = i ? tt__time_step(r->y, before) : *r->h0;
    if (r->c) {
        s->c = i ? tt__time_step(r->c, before) : *r->c0;
        s->c_next = tt__time_step(r->c, t);
    }
}

static tt_status rnn_forward_step(const char *who, tt__kernel_rnn_cell run, const tt__rnn *r, const tt_tensor *bias,
                                  int64_t i) {
    rnn_step s;
    int64_t T = r->y->shape.dim[0];
    look_at_step(&s, r, i);
    tt_tensor x = tt__time_step(r->x, r->reverse ? T - 1 - i : i);
    tt_tensor wt = tt__transposed(r->weight), hidden = first_columns(&s.gates, r->weight->shape.dim[0]);
    TT__TRY(tt__matmul_out(who, &hidden, &s.h, &wt, 0));
    const tt__cell_step step = {.cell = r->cell,
                                .x = &x,
                                .bias = bias,
                                .h = &s.h,
                                .c = r->c ? &s.c : NULL,
                                .gates = &s.gates,
                                .c_next = r->c ? &s.c_next : NULL};
    return run(&s.y, &step);
}

tt_status tt__rnn_out(const char *who, const tt__rnn *r) {
    tt__kernel_rnn_cell run = TT__KERNEL(who, r->y, rnn_cell);
    if (!run)
        return tt_last_status();
    tt_tensor *none = r->bias ? NULL : tt__empty_beside(who, r->x, TT_SHAPE(r->weight->shape.dim[0]), r->x->dtype);
    tt_status status = !r->bias && !none ? tt_last_status() : none ? tt__fill_out(who, none, 0) : TT_OK;
    for (int64_t i = 0; i < r->y->shape.dim[0] && r->y->numel && !status; i++)
        status = rnn_forward_step(who, run, r, none ? none : r->bias, i);
    tt__abandon(none);
    return status;
}

static tt_status rnn_backward_step(const char *who, tt__kernel_rnn_cell_backward run, const tt__rnn *r,
                                   const tt__rnn_grads *d, int64_t i) {
    rnn_step s;
    int64_t T = r->y->shape.dim[0], t = r->reverse ? T - 1 - i : i;
    look_at_step(&s, r, i);
    tt_tensor g = tt__time_step(d->g, t), dx = tt__time_step(d->dx, t), dhidden = dx;
    if (d->dhidden)
        dhidden = tt__time_step(d->dhidden, t);
    const tt__cell_grad grad = {.cell = r->cell,
                                .gates = &s.gates,
                                .y = &s.y,
                                .h = &s.h,
                                .c = r->c ? &s.c : NULL,
                                .c_next = r->c ? &s.c_next : NULL,
                                .g = &g,
                                .dh = d->dh,
                                .dc = d->dc,
                                .dhidden = d->dhidden ? &dhidden : NULL};
    TT__TRY(run(&dx, &grad));
    return tt__matmul_out(who, d->dh, &dhidden, r->weight, r->cell == TT__CELL_GRU ? 1 : 0);
}

tt_status tt__rnn_backward_out(const char *who, const tt__rnn *r, const tt__rnn_grads *d) {
    tt__kernel_rnn_cell_backward run = TT__KERNEL(who, d->dx, rnn_cell_backward);
    if (!run)
        return tt_last_status();
    for (int64_t i = r->y->shape.dim[0]; i-- > 0 && r->y->numel;)
        TT__TRY(rnn_backward_step(who, run, r, d, i));
    return TT_OK;
}

tt_status tt__rnn_weight_out(const char *who, tt_tensor *dweight, const tt__rnn *r, const tt__rnn_grads *d) {
    const tt_tensor *from = d->dhidden ? d->dhidden : d->dx;
    int64_t T = r->y->shape.dim[0], first = r->reverse ? T - 1 : 0;
    tt_tensor start = tt__time_step(from, first), start_t = tt__transposed(&start);
    if (!r->y->numel)
        return tt__fill_out(who, dweight, 0);
    TT__TRY(tt__matmul_out(who, dweight, &start_t, r->h0, 0));
    if (T == 1)
        return TT_OK;
    tt_tensor rest = time_steps(from, r->reverse ? 0 : 1, T - 1), rest_t = tt__transposed(&rest);
    tt_tensor states = time_steps(r->y, r->reverse ? 1 : 0, T - 1);
    return tt__matmul_out(who, dweight, &rest_t, &states, 1);
}
