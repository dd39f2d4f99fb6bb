/* RNN, LSTM and GRU: layers of a recurrence, in one direction or both. */
#include "autograd/ops/op_rnn.h"

#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "tensor/core/pool.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A larger number can only be a mistake. */
enum { RNN_MOST_LAYERS = 1000 };

/* One layer in one direction; all borrowed from the module. */
typedef struct rnn_weights {
    tt_tensor *weight_ih, *weight_hh, *bias_ih, *bias_hh; /* the biases may be NULL */
} rnn_weights;

typedef struct rnn_module {
    tt__cell cell;
    int64_t input_size, hidden_size, layers, directions;
    bool batch_first;
    double dropout;
    rnn_weights weights[]; /* (layers * directions) */
} rnn_module;

/* ---- forward ---- */

/* What goes through the layers. */
typedef struct rnn_run {
    tt_module *self;
    const rnn_module *m;
    const tt_tensor *given; /* what the caller gave */
    tt_tensor *x;           /* (T,B,C): input of the next layer */
    tt_tensor *h0, *c0;     /* (layers * directions,B,H); NULL: zeros */
    tt_tensor *zeros;       /* (B,H), where they are needed */
    tt_tensor **h, **c;     /* (layers * directions): the last states */
} rnn_run;

/* Replace run->x, and abandon the old one, whose records hold what they need: without a scope nobody else would free
 * it. */
static void rnn_go_on_with(rnn_run *run, tt_tensor *x) {
    if (run->x != x && run->x != run->given)
        tt__abandon(run->x);
    run->x = x;
}

/* The initial state of layer and direction number `at`. */
static tt_tensor *rnn_state_before(rnn_run *run, tt_tensor *given, int64_t at) {
    if (given)
        return tt_select(given, 0, at);
    if (!run->zeros) {
        const char *who = tt_module_class_name(run->self);
        tt_tensor *zeros =
            tt__empty_beside(who, run->x, TT_SHAPE(tt_tensor_size(run->x, 1), run->m->hidden_size), run->x->dtype);
        run->zeros = zeros && !tt__fill_out(who, zeros, 0) ? zeros : tt__abandon(zeros);
    }
    return run->zeros;
}

/* Run one layer in one direction. */
static tt_tensor *rnn_direction(rnn_run *run, int64_t layer, int64_t direction) {
    const rnn_module *m = run->m;
    int64_t at = layer * m->directions + direction;
    const rnn_weights *w = &m->weights[at];
    tt_tensor *y, *c = NULL, *h0 = rnn_state_before(run, run->h0, at);
    tt_tensor *c0 = m->cell == TT__CELL_LSTM ? rnn_state_before(run, run->c0, at) : NULL;
    const tt__rnn_call call = {.cell = m->cell,
                               .reverse = direction == 1,
                               .x = tt_linear(run->x, w->weight_ih, w->bias_ih),
                               .h0 = h0,
                               .c0 = c0,
                               .weight = w->weight_hh,
                               .bias = w->bias_hh};
    tt_status status = tt__rnn_layer(&call, &y, &c);
    tt__abandon(call.x);
    if (run->h0)
        tt__abandon(h0);
    if (run->c0)
        tt__abandon(c0);
    if (!status && run->h)
        run->h[at] = tt_select(y, 0, direction == 1 ? 0 : tt_tensor_size(y, 0) - 1);
    if (run->c)
        run->c[at] = c;
    else
        tt__abandon(c);
    return status ? NULL : y;
}

/* Run all layers; run->x becomes what the last one gives. */
static tt_status rnn_layers(rnn_run *run) {
    const rnn_module *m = run->m;
    for (int64_t layer = 0; layer < m->layers && run->x; layer++) {
        tt_tensor *y[2] = {rnn_direction(run, layer, 0), NULL};
        if (y[0] && m->directions == 2)
            y[1] = rnn_direction(run, layer, 1);
        bool both = y[0] && y[1];
        rnn_go_on_with(run, m->directions == 1 ? y[0] : both ? tt_cat(y, 2, -1) : NULL);
        if (m->directions == 2)
            tt__abandon(y[0]), tt__abandon(y[1]);
        if (layer + 1 < m->layers && run->x)
            rnn_go_on_with(run, tt_dropout(run->x, m->dropout, tt_module_training(run->self)));
    }
    return run->x ? TT_OK : tt_last_status();
}

/* out[0] = output, out[1] = h_n, out[2] = c_n: as many as are asked for. */
static tt_status rnn_results_of(rnn_run *run, bool batched, tt_tensor **out, int64_t out_count) {
    int64_t states = run->m->layers * run->m->directions;
    if (!batched)
        rnn_go_on_with(run, tt_squeeze(run->x, 1));
    else if (run->m->batch_first)
        rnn_go_on_with(run, tt_transpose(run->x, 0, 1));
    out[0] = run->x;
    bool done = out[0];
    for (int64_t i = 1; i < out_count && done; i++) {
        tt_tensor *last = tt_stack(i == 1 ? run->h : run->c, states, 0);
        out[i] = batched ? last : tt_squeeze(last, 1);
        if (out[i] != last)
            tt__abandon(last);
        done = out[i];
    }
    return done ? TT_OK : tt_last_status();
}

static tt_status rnn_run_all(rnn_run *run, bool batched, tt_tensor **out, int64_t out_count) {
    int64_t states = run->m->layers * run->m->directions;
    tt_tensor **last = tt__pool_alloc((size_t)(2 * states) * sizeof(tt_tensor *));
    if (!last)
        return TT__FORWARD_FAIL(TT_ERR_MEMORY, "%s: no memory for a list of states", tt_module_class_name(run->self));
    memset(last, 0, (size_t)(2 * states) * sizeof(tt_tensor *));
    run->h = out_count > 1 ? last : NULL;
    run->c = out_count > 2 ? last + states : NULL;
    tt_status status = rnn_layers(run);
    if (!status)
        status = rnn_results_of(run, batched, out, out_count);
    for (int64_t i = 0; i < 2 * states; i++)
        tt__abandon(last[i]);
    tt__abandon(run->zeros);
    if (status) {
        rnn_go_on_with(run, NULL);
        out[0] = NULL;
        for (int64_t i = 1; i < out_count; i++)
            out[i] = tt__abandon(out[i]);
    }
    tt__pool_free(last);
    return status;
}

/* ---- what it takes ---- */

static tt_status rnn_fail_counts(const tt_module *self, bool lstm, int64_t in_count, int64_t out_count) {
    return TT__FORWARD_FAIL(TT_ERR_INVALID,
                            "forward: a %s takes x%s, and gives output%s; %lld tensors came, and %lld were "
                            "asked for",
                            tt_module_class_name(self), lstm ? ", or x, h_0 and c_0" : ", or x and h_0",
                            lstm ? ", or output, h_n and c_n" : ", or output and h_n", (long long)in_count,
                            (long long)out_count);
}

/* Is x (T,B,C), with batch_first (B,T,C), or (T,C), and has it the parameters' type and device? */
static tt_status rnn_check_input(const tt_module *self, const rnn_module *m, const tt_tensor *x) {
    const char *who = tt_module_class_name(self);
    const tt_tensor *weight = m->weights[0].weight_ih;
    int dims = x->shape.ndim;
    if ((dims != 2 && dims != 3) || x->shape.dim[dims - 1] != m->input_size)
        return TT__FORWARD_FAIL(
            TT_ERR_SHAPE, "forward: a %s expected x (%s, %" PRId64 ") or, without a batch, (T, %" PRId64 "), got x %s",
            who, m->batch_first ? "B, T" : "T, B", m->input_size, m->input_size, TT__DESCRIBE(x));
    if (x->shape.dim[dims == 3 && m->batch_first ? 1 : 0] == 0)
        return TT__FORWARD_FAIL(TT_ERR_SHAPE, "forward: a %s expected at least one step, got x %s", who,
                                TT__DESCRIBE(x));
    return tt__check_layer_input(self, "x", x, weight);
}

/* Is a state (layers * directions,B,H), or without B? */
static tt_status rnn_check_state(const tt_module *self, const rnn_module *m, const char *name, const tt_tensor *state,
                                 const tt_tensor *x) {
    bool batched = x->shape.ndim == 3;
    tt_shape expected =
        TT_SHAPE(m->layers * m->directions, batched ? x->shape.dim[m->batch_first ? 0 : 1] : 1, m->hidden_size);
    if (!batched)
        expected = TT_SHAPE(expected.dim[0], m->hidden_size);
    if (!tt__shape_equal(&state->shape, &expected))
        return TT__FORWARD_FAIL(TT_ERR_SHAPE, "forward: a %s expected %s %s for x %s, got %s",
                                tt_module_class_name(self), name, TT__SHAPE_TEXT(&expected), TT__DESCRIBE(x),
                                TT__DESCRIBE(state));
    return tt__check_layer_input(self, name, state, m->weights[0].weight_ih);
}

static tt_status rnn_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                  int64_t out_count) {
    static const char *const names[] = {"x", "h_0", "c_0"};
    const rnn_module *m = tt_module_user(self);
    bool lstm = m->cell == TT__CELL_LSTM;
    int64_t all = lstm ? 3 : 2;
    if ((in_count != 1 && in_count != all) || (out_count != 1 && out_count != all))
        return rnn_fail_counts(self, lstm, in_count, out_count);
    TT__TRY(rnn_check_input(self, m, in[0]));
    for (int64_t i = 1; i < in_count; i++)
        TT__TRY(rnn_check_state(self, m, names[i], in[i], in[0]));
    bool batched = in[0]->shape.ndim == 3;
    rnn_run run = {.self = self, .m = m, .given = in[0], .x = in[0]};
    if (!batched)
        run.x = tt_unsqueeze(run.x, 1);
    else if (m->batch_first)
        run.x = tt_transpose(run.x, 0, 1);
    if (in_count > 1)
        run.h0 = batched ? in[1] : tt_unsqueeze(in[1], 1);
    if (in_count > 2)
        run.c0 = batched ? in[2] : tt_unsqueeze(in[2], 1);
    bool ready = run.x && (in_count < 2 || run.h0) && (in_count < 3 || run.c0);
    tt_status status = ready ? rnn_run_all(&run, batched, out, out_count) : tt_last_status();
    if (!ready)
        rnn_go_on_with(&run, NULL);
    if (!batched && in_count > 1)
        tt__abandon(run.h0), tt__abandon(run.c0);
    return status;
}

static const tt_module_class rnn_classes[] = {
    [TT__CELL_TANH] = TT_MODULE_CLASS(.name = "RNN", .forward_many = rnn_forward_many, .destroy = tt__layer_destroy),
    [TT__CELL_RELU] = TT_MODULE_CLASS(.name = "RNN", .forward_many = rnn_forward_many, .destroy = tt__layer_destroy),
    [TT__CELL_LSTM] = TT_MODULE_CLASS(.name = "LSTM", .forward_many = rnn_forward_many, .destroy = tt__layer_destroy),
    [TT__CELL_GRU] = TT_MODULE_CLASS(.name = "GRU", .forward_many = rnn_forward_many, .destroy = tt__layer_destroy),
};

/* ---- making ---- */

static tt_status rnn_check(const char *who, const tt_nn_rnn_args *a, tt__cell cell) {
    if (a->input_size < 1 || a->hidden_size < 1 || a->hidden_size > INT64_MAX / 4)
        return tt__fail(TT_ERR_INVALID, "%s: expected sizes of at least 1, got input_size %lld, hidden_size %lld", who,
                        (long long)a->input_size, (long long)a->hidden_size);
    if (a->num_layers < 0 || a->num_layers > RNN_MOST_LAYERS)
        return tt__fail(TT_ERR_INVALID, "%s: expected num_layers in 0..%d, got %lld", who, RNN_MOST_LAYERS,
                        (long long)a->num_layers);
    if (!(a->dropout >= 0 && a->dropout <= 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected dropout in 0..1, got %g", who, a->dropout);
    if (a->relu && cell != TT__CELL_RELU)
        return tt__fail(TT_ERR_INVALID, "%s: .relu is an option of tt_nn_rnn() only", who);
    return tt__layer_dtype_check(who, a->dtype);
}

/* Add the parameters of one layer in one direction. */
static tt_status rnn_add_weights(tt_module *module, const tt_nn_rnn_args *a, const tt__drawing *drawing, int64_t layer,
                                 int64_t direction) {
    rnn_module *m = tt_module_user(module);
    rnn_weights *w = &m->weights[layer * m->directions + direction];
    int64_t gates = tt__cell_gates(m->cell) * m->hidden_size;
    int64_t inputs = layer ? m->directions * m->hidden_size : m->input_size;
    const struct {
        const char *name;
        tt_tensor **to;
        tt_shape shape;
    } all[] = {{"weight_ih", &w->weight_ih, TT_SHAPE(gates, inputs)},
               {"weight_hh", &w->weight_hh, TT_SHAPE(gates, m->hidden_size)},
               {"bias_ih", &w->bias_ih, TT_SHAPE(gates)},
               {"bias_hh", &w->bias_hh, TT_SHAPE(gates)}};
    for (int i = 0; i < (a->no_bias ? 2 : 4); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_l%lld%s", all[i].name, (long long)layer, direction ? "_reverse" : "");
        *all[i].to = tt__add_drawn(module, name, all[i].shape, 1 / sqrt((double)m->hidden_size), drawing);
        if (!*all[i].to)
            return tt_last_status();
    }
    return TT_OK;
}

static tt_status rnn_add_all(tt_module *module, const tt_nn_rnn_args *a, const tt__drawing *drawing) {
    const rnn_module *m = tt_module_user(module);
    for (int64_t layer = 0; layer < m->layers; layer++)
        for (int64_t direction = 0; direction < m->directions; direction++)
            TT__TRY(rnn_add_weights(module, a, drawing, layer, direction));
    return TT_OK;
}

static tt_module *rnn_new(const char *who, tt__cell cell, const tt_nn_rnn_args *a) {
    if (rnn_check(who, a, cell))
        return NULL;
    int64_t layers = a->num_layers ? a->num_layers : 1, directions = a->bidirectional ? 2 : 1;
    size_t bytes = (size_t)(layers * directions) * sizeof(rnn_weights);
    tt_module *module = tt__layer_new(who, &rnn_classes[cell], sizeof(rnn_module) + bytes);
    rnn_module *m = tt_module_user(module);
    if (!m)
        return NULL;
    m->cell = cell;
    m->input_size = a->input_size;
    m->hidden_size = a->hidden_size;
    m->layers = layers;
    m->directions = directions;
    m->batch_first = a->batch_first;
    m->dropout = a->dropout;
    const tt__drawing drawing = {who, a->generator, a->dtype};
    return tt__layer_made(module, rnn_add_all(module, a, &drawing));
}

tt_module *tt_nn_rnn_with(const tt_nn_rnn_args *args, size_t size) {
    tt_nn_rnn_args a;
    TT__ARGS_COPY(a, args, size);
    return rnn_new("tt_nn_rnn", a.relu ? TT__CELL_RELU : TT__CELL_TANH, &a);
}

tt_module *tt_nn_lstm_with(const tt_nn_rnn_args *args, size_t size) {
    tt_nn_rnn_args a;
    TT__ARGS_COPY(a, args, size);
    return rnn_new("tt_nn_lstm", TT__CELL_LSTM, &a);
}

tt_module *tt_nn_gru_with(const tt_nn_rnn_args *args, size_t size) {
    tt_nn_rnn_args a;
    TT__ARGS_COPY(a, args, size);
    return rnn_new("tt_nn_gru", TT__CELL_GRU, &a);
}
