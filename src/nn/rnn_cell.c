/* One step of a recurrence: RNNCell, LSTMCell, GRUCell. */
#include "autograd/ops/op_rnn.h"
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>

typedef struct rnn_cell {
    tt__cell cell;
    int64_t input_size, hidden_size;
    tt_tensor *weight_ih, *weight_hh, *bias_ih, *bias_hh; /* borrowed from the module; the biases may be NULL */
} rnn_cell;

/* ---- what it takes ---- */

/* Is x (B,size), or (size) where `dims` is 1? */
static tt_status cell_check(const tt_module *self, const rnn_cell *c, const char *name, const tt_tensor *x, int dims,
                            int64_t B, int64_t size) {
    bool fits = x->shape.ndim == dims && x->shape.dim[dims - 1] == size && (dims == 1 || x->shape.dim[0] == B);
    if (!fits)
        return TT__FORWARD_FAIL(TT_ERR_SHAPE, "forward: a %s expected %s of %" PRId64 " values%s, got %s",
                                tt_module_class_name(self), name, size,
                                dims == 2 ? " for each sequence, (B, ...)" : ", without a batch", TT__DESCRIBE(x));
    return tt__check_layer_input(self, name, x, c->weight_ih);
}

static tt_status cell_check_all(const tt_module *self, const rnn_cell *c, tt_tensor *const *in, int64_t in_count,
                                int64_t out_count) {
    static const char *const names[] = {"x", "h", "c"};
    bool lstm = c->cell == TT__CELL_LSTM;
    if ((in_count != 1 && in_count != (lstm ? 3 : 2)) || (out_count != 1 && out_count != (lstm ? 2 : 1)))
        return TT__FORWARD_FAIL(
            TT_ERR_INVALID, "forward: a %s takes x, or x%s, and gives h%s; %lld tensors came, and %lld were asked for",
            tt_module_class_name(self), lstm ? ", h and c" : " and h", lstm ? ", or h and c" : "", (long long)in_count,
            (long long)out_count);
    int dims = in[0]->shape.ndim == 1 ? 1 : 2;
    int64_t B = dims == 2 && in[0]->shape.ndim == 2 ? in[0]->shape.dim[0] : 1;
    for (int64_t i = 0; i < in_count; i++)
        TT__TRY(cell_check(self, c, names[i], in[i], dims, B, i ? c->hidden_size : c->input_size));
    return TT_OK;
}

/* ---- forward ---- */

/* The given state as (B,H), or zeros. */
static tt_tensor *cell_state(tt__temporaries *made, tt_tensor *const *given, tt_tensor *state, const tt_tensor *x,
                             int64_t H) {
    if (state)
        return state->shape.ndim == 2 ? state : tt__temporary(made, given, tt_unsqueeze(state, 0));
    tt_tensor *zeros = tt__empty_beside("forward", x, TT_SHAPE(x->shape.dim[0], H), x->dtype);
    tt__temporary(made, given, zeros);
    return zeros && !tt__fill_out("forward", zeros, 0) ? zeros : NULL;
}

/* Run the step on what was checked; out[0] = h, out[1] = c. */
static tt_status cell_step(tt__temporaries *made, const rnn_cell *c, tt_tensor *const *given, int64_t in_count,
                           tt_tensor **out) {
    bool batched = given[0]->shape.ndim == 2, lstm = c->cell == TT__CELL_LSTM;
    tt_tensor *x = batched ? given[0] : tt__temporary(made, given, tt_unsqueeze(given[0], 0)), *y, *next;
    if (!x)
        return tt_last_status();
    tt_tensor *part = tt__temporary(made, given, tt_linear(x, c->weight_ih, c->bias_ih));
    const tt__rnn_call call = {.cell = c->cell,
                               .x = tt__temporary(made, given, tt_unsqueeze(part, 0)), /* a sequence of one step */
                               .h0 = cell_state(made, given, in_count > 1 ? given[1] : NULL, x, c->hidden_size),
                               .c0 = lstm ? cell_state(made, given, in_count > 2 ? given[2] : NULL, x, c->hidden_size)
                                          : NULL,
                               .weight = c->weight_hh,
                               .bias = c->bias_hh};
    TT__TRY(tt__rnn_layer(&call, &y, &next));
    tt__temporary(made, given, y);
    tt__temporary(made, given, next);
    out[0] = tt__temporary(made, given, tt_squeeze(y, 0));
    out[1] = next;
    if (!batched && out[0])
        out[0] = tt__temporary(made, given, tt_squeeze(out[0], 0));
    if (!batched && next)
        out[1] = tt__temporary(made, given, tt_squeeze(next, 0));
    return out[0] && (out[1] || !lstm) ? TT_OK : tt_last_status();
}

static tt_status cell_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                   int64_t out_count) {
    const rnn_cell *c = tt_module_user(self);
    tt__temporaries made = {0};
    tt_tensor *given[4] = {NULL}, *all[2] = {NULL};
    TT__TRY(cell_check_all(self, c, in, in_count, out_count));
    for (int64_t i = 0; i < in_count; i++)
        given[i] = in[i];
    tt_status status = cell_step(&made, c, given, in_count, all);
    tt__temporaries_end(&made, status ? NULL : all[0], !status && out_count == 2 ? all[1] : NULL);
    for (int64_t i = 0; i < out_count && !status; i++)
        out[i] = all[i];
    return status;
}

static const tt_module_class rnn_cell_class =
    TT_MODULE_CLASS(.name = "RNNCell", .forward_many = cell_forward_many, .destroy = tt__layer_destroy);
static const tt_module_class lstm_cell_class =
    TT_MODULE_CLASS(.name = "LSTMCell", .forward_many = cell_forward_many, .destroy = tt__layer_destroy);
static const tt_module_class gru_cell_class =
    TT_MODULE_CLASS(.name = "GRUCell", .forward_many = cell_forward_many, .destroy = tt__layer_destroy);

/* ---- making ---- */

static tt_status cell_add(tt_module *module, rnn_cell *c, const tt_nn_rnn_cell_args *a, const tt__drawing *drawing) {
    int64_t H = c->hidden_size, gates = tt__cell_gates(c->cell) * H;
    double bound = 1 / sqrt((double)H);
    c->weight_ih = tt__add_drawn(module, "weight_ih", TT_SHAPE(gates, c->input_size), bound, drawing);
    c->weight_hh = c->weight_ih ? tt__add_drawn(module, "weight_hh", TT_SHAPE(gates, H), bound, drawing) : NULL;
    if (!c->weight_hh)
        return tt_last_status();
    if (a->no_bias)
        return TT_OK;
    c->bias_ih = tt__add_drawn(module, "bias_ih", TT_SHAPE(gates), bound, drawing);
    c->bias_hh = c->bias_ih ? tt__add_drawn(module, "bias_hh", TT_SHAPE(gates), bound, drawing) : NULL;
    return c->bias_hh ? TT_OK : tt_last_status();
}

static tt_module *cell_new(const char *who, const tt_module_class *cls, tt__cell cell, const tt_nn_rnn_cell_args *a) {
    if (a->input_size < 1 || a->hidden_size < 1 || a->hidden_size > INT64_MAX / 4)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected sizes of at least 1, got input_size %lld, hidden_size %lld",
                             who, (long long)a->input_size, (long long)a->hidden_size);
    if (a->relu && cell != TT__CELL_RELU)
        return tt__fail_null(TT_ERR_INVALID, "%s: .relu is an option of tt_nn_rnn_cell() only", who);
    if (tt__layer_dtype_check(who, a->dtype))
        return NULL;
    tt_module *module = tt__layer_new(who, cls, sizeof(rnn_cell));
    rnn_cell *c = tt_module_user(module);
    if (!c)
        return NULL;
    c->cell = cell;
    c->input_size = a->input_size;
    c->hidden_size = a->hidden_size;
    const tt__drawing drawing = {who, a->generator, a->dtype};
    return tt__layer_made(module, cell_add(module, c, a, &drawing));
}

tt_module *tt_nn_rnn_cell_with(const tt_nn_rnn_cell_args *args, size_t size) {
    tt_nn_rnn_cell_args a;
    TT__ARGS_COPY(a, args, size);
    return cell_new("tt_nn_rnn_cell", &rnn_cell_class, a.relu ? TT__CELL_RELU : TT__CELL_TANH, &a);
}

tt_module *tt_nn_lstm_cell_with(const tt_nn_rnn_cell_args *args, size_t size) {
    tt_nn_rnn_cell_args a;
    TT__ARGS_COPY(a, args, size);
    return cell_new("tt_nn_lstm_cell", &lstm_cell_class, TT__CELL_LSTM, &a);
}

tt_module *tt_nn_gru_cell_with(const tt_nn_rnn_cell_args *args, size_t size) {
    tt_nn_rnn_cell_args a;
    TT__ARGS_COPY(a, args, size);
    return cell_new("tt_nn_gru_cell", &gru_cell_class, TT__CELL_GRU, &a);
}
