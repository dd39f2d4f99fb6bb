/* A recurrent layer in one direction. Inputs: x (T,B,G H), h0 (B,H), c0 (B,H) or none, weight (G H,H), bias (G H) or
 * none. Results: y (T,B,H), and c_n (B,H) of an LSTM. Backward walks the steps from the last one; the gradients of
 * weight and bias are one product and one sum over all steps. */
#include "autograd/ops/op_rnn.h"

#include "autograd/record.h"
#include "base/error.h"

typedef struct rnn_state {
    tt__cell cell;
    bool reverse;
} rnn_state;

enum { RNN_X, RNN_H0, RNN_C0, RNN_WEIGHT, RNN_BIAS, RNN_INPUTS };

/* What is made for the length of a call. */
enum { RNN_MADE = 8 };
typedef struct rnn_work {
    const char *who;
    int n;
    tt_tensor *made[RNN_MADE];
    const tt_tensor *given[RNN_MADE];
    bool failed;
} rnn_work;

/* Return x, or a contiguous copy that rnn_work_end() frees; NULL for NULL. */
static tt_tensor *rnn_plain(rnn_work *w, const tt_tensor *x) {
    if (!x || w->failed)
        return NULL;
    tt_tensor *plain = tt__contiguous_begin(w->who, x);
    w->failed = !plain;
    w->given[w->n] = x;
    w->made[w->n++] = plain;
    return plain;
}

/* Return a copy of x, or zeros where there is none, of this shape, beside another tensor. */
static tt_tensor *rnn_copy_or_zeros(rnn_work *w, const tt_tensor *x, const tt_tensor *beside, tt_shape shape) {
    if (w->failed)
        return NULL;
    tt_tensor *copy = tt__empty_beside(w->who, beside, shape, beside->dtype);
    w->failed = !copy || (x ? tt__copy_out(w->who, copy, x) : tt__fill_out(w->who, copy, 0));
    w->given[w->n] = NULL;
    w->made[w->n++] = copy;
    return copy;
}

static tt_status rnn_work_end(rnn_work *w, tt_status status) {
    while (w->n--) {
        if (w->given[w->n])
            tt__contiguous_done(w->made[w->n], w->given[w->n]);
        else
            tt__abandon(w->made[w->n]);
    }
    return status;
}

/* ---- backward; saved: h0, c0, weight, y, gates, c */

static bool rnn_saved(tt__rnn *r, tt_node *node) {
    const tt_tensor *saved[6];
    for (int i = 0; i < 6; i++) {
        saved[i] = node->save[i].tensor ? tt__saved(node, i) : NULL;
        if (node->save[i].tensor && !saved[i])
            return false;
    }
    const rnn_state *s = tt__state(node);
    *r = (tt__rnn){.cell = s->cell,
                   .reverse = s->reverse,
                   .h0 = saved[0],
                   .c0 = saved[1],
                   .weight = saved[2],
                   .y = (tt_tensor *)(uintptr_t)saved[3],
                   .gates = (tt_tensor *)(uintptr_t)saved[4],
                   .c = (tt_tensor *)(uintptr_t)saved[5]};
    return true;
}

static tt_status rnn_give(tt_node *node, const tt__rnn *r, const tt__rnn_grads *d) {
    const char *who = node->op->name;
    if (tt__grad_wanted(node, RNN_BIAS)) {
        tt_tensor rows = tt__as_rows(d->dhidden ? d->dhidden : d->dx);
        TT__GIVE(node, RNN_BIAS, db, tt__sum_to_out(who, db, &rows, 1));
    }
    if (tt__grad_wanted(node, RNN_WEIGHT))
        TT__GIVE(node, RNN_WEIGHT, dw, tt__rnn_weight_out(who, dw, r, d));
    TT__TRY(tt__grad_give(node, RNN_H0, d->dh));
    if (d->dc)
        TT__TRY(tt__grad_give(node, RNN_C0, d->dc));
    return tt__grad_give(node, RNN_X, d->dx);
}

static tt_status rnn_backward(tt_node *node) {
    const char *who = node->op->name;
    rnn_work w = {.who = who};
    tt__rnn r;
    if (!rnn_saved(&r, node))
        return tt_last_status();
    const tt_tensor *g = tt__grad_of(node, 0);
    tt_shape gates = r.y->shape, state = r.h0->shape;
    gates.dim[2] *= tt__cell_gates(r.cell);
    r.h0 = rnn_plain(&w, r.h0);
    r.c0 = rnn_plain(&w, r.c0);
    r.weight = rnn_plain(&w, r.weight);
    tt__rnn_grads d = {.g = g ? rnn_plain(&w, g) : rnn_copy_or_zeros(&w, NULL, r.y, r.y->shape)};
    d.dh = rnn_copy_or_zeros(&w, NULL, r.y, state);
    d.dc = r.c ? rnn_copy_or_zeros(&w, tt__grad_of(node, 1), r.y, state) : NULL;
    d.dhidden = r.cell == TT__CELL_GRU && !w.failed ? tt__empty_beside(who, r.y, gates, r.y->dtype) : NULL;
    d.dx = w.failed ? NULL : tt__empty_beside(who, r.y, gates, r.y->dtype);
    bool ready = d.dx && (d.dhidden || r.cell != TT__CELL_GRU);
    tt_status status = ready ? tt__rnn_backward_out(who, &r, &d) : tt_last_status();
    if (!status)
        status = rnn_give(node, &r, &d);
    return rnn_work_end(&w, status);
}

/* Named as the modules are. */
static const tt__operator rnn_ops[] = {
    [TT__CELL_TANH] = {.name = "RNN", .backward = rnn_backward},
    [TT__CELL_RELU] = {.name = "RNN", .backward = rnn_backward},
    [TT__CELL_LSTM] = {.name = "LSTM", .backward = rnn_backward},
    [TT__CELL_GRU] = {.name = "GRU", .backward = rnn_backward},
};

/* ---- forward */

static tt_status rnn_record(const tt__rnn_call *call, const rnn_state *s, const tt__rnn *r, tt_tensor *c_n) {
    tt_tensor *in[RNN_INPUTS] = {call->x, call->h0, call->c0, call->weight, call->bias};
    const tt__to_save save[] = {{call->h0, "h_0"}, {call->c0, "c_0"},       {call->weight, "weight_hh"},
                                {r->y, "output"},  {r->gates, "the gates"}, {r->c, "the cell states"}};
    if (!tt__wants_grad(RNN_INPUTS, in))
        return TT_OK;
    tt_node *node = tt__node_new(&rnn_ops[call->cell], RNN_INPUTS, in, c_n ? 2 : 1, 6, s, sizeof *s);
    tt_status status = node ? TT_OK : tt_last_status();
    for (int i = 0; i < 6 && !status; i++)
        status = tt__node_save(node, save[i].x, save[i].name);
    if (!status)
        tt__node_made(node, 0, r->y);
    if (!status && c_n)
        tt__node_made(node, 1, c_n);
    tt__node_unref(node);
    return status;
}

/* Make the tensors that the call fills. */
static bool rnn_results(const char *who, tt__rnn *r) {
    tt_shape shape = r->x->shape, gates = shape;
    shape.dim[2] = r->weight->shape.dim[1];
    gates.dim[2] = 4 * shape.dim[2];
    bool gated = r->cell == TT__CELL_LSTM || r->cell == TT__CELL_GRU;
    r->y = tt__empty_beside(who, r->x, shape, r->x->dtype);
    r->gates = r->y && gated ? tt__empty_beside(who, r->x, gates, r->x->dtype) : NULL;
    r->c = r->y && r->c0 ? tt__empty_beside(who, r->x, shape, r->x->dtype) : NULL;
    return r->y && (r->gates || !gated) && (r->c || !r->c0);
}

/* Copy the last cell state. */
static tt_tensor *last_cell_state(const char *who, const tt__rnn *r) {
    tt_tensor last = tt__time_step(r->c, r->reverse ? 0 : r->c->shape.dim[0] - 1);
    return tt__clone_contiguous(who, &last);
}

tt_status tt__rnn_layer(const tt__rnn_call *call, tt_tensor **y, tt_tensor **c_n) {
    const char *who = rnn_ops[call->cell].name;
    rnn_work w = {.who = who};
    const rnn_state s = {.cell = call->cell, .reverse = call->reverse};
    bool lstm = call->cell == TT__CELL_LSTM;
    *y = *c_n = NULL;
    if (!call->x || !call->h0 || !call->weight || (lstm && !call->c0))
        return tt__tensor_first_error(who);
    tt__rnn r = {.cell = call->cell, .reverse = call->reverse};
    r.x = rnn_plain(&w, call->x);
    r.h0 = rnn_plain(&w, call->h0);
    r.c0 = rnn_plain(&w, call->c0);
    r.weight = rnn_plain(&w, call->weight);
    r.bias = rnn_plain(&w, call->bias);
    tt_status status = !w.failed && rnn_results(who, &r) ? tt__rnn_out(who, &r) : tt_last_status();
    if (!status && lstm && !(*c_n = last_cell_state(who, &r)))
        status = tt_last_status();
    if (!status)
        status = rnn_record(call, &s, &r, *c_n);
    tt__abandon(r.gates);
    tt__abandon(r.c);
    *y = status ? tt__abandon(r.y) : r.y;
    if (status)
        *c_n = tt__abandon(*c_n);
    return rnn_work_end(&w, status);
}
