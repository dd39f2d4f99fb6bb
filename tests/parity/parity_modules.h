/* Recurrent modules, their cells, attention with its projections, a transformer's layer. */
#ifndef PARITY_MODULES_H
#define PARITY_MODULES_H

#include "parity.h"

/* Give a module the type and device of the first input, and the values of those from `first` on, in the order of its
 * parameters, which get the gradients. */
static inline tt_module *parity_module(parity_call *c, tt_module *module, int first) {
    tt_ignore(tt_module_to(module, tt_tensor_dtype(c->in[0])));
    tt_ignore(tt_module_to_device(module, tt_tensor_device(c->in[0])));
    const tt_named_tensors *p = tt_module_parameters(module);
    if (p && p->count != c->inputs - first) {
        tt_ignore(tt_fail(TT_ERR_INVALID, "%d parameters came, the module has %d", c->inputs - first, (int)p->count));
        p = NULL;
    }
    for (int i = first; p && i < c->inputs; i++) {
        tt_ignore(tt_copy(p->tensors[i - first], c->in[i]));
        c->leaf[i] = c->leaf[i] ? p->tensors[i - first] : NULL;
    }
    return c->module = module;
}

/* All results in one. */
static inline tt_tensor *parity_joined(tt_tensor **x, int count) {
    for (int i = 0; i < count; i++)
        x[i] = tt_reshape(x[i], TT_SHAPE(-1));
    return tt_cat(x, count, 0);
}

/* Run a module on x and its states; `more`: how many results there are besides the states. */
static inline void parity_recurrent(parity_call *c, tt_module *module, int more) {
    tt_tensor *out[3] = {NULL};
    int states = INT("states", 1);
    tt_ignore(tt_module_forward_many(parity_module(c, module, 1 + states), c->in, 1 + states, out, states + more));
    parity_give(c, parity_joined(out, states + more));
}

#define PARITY_RNN(name, kind)                                                                                    \
    static void parity_##name(parity_call *c) {                                                                   \
        parity_recurrent(c,                                                                                       \
                         kind(INT("input", 1), INT("hidden", 1), .num_layers = INT("layers", 1),                  \
                              .no_bias = parity_bool(c, "no_bias"), .batch_first = parity_bool(c, "batch_first"), \
                              .bidirectional = parity_bool(c, "bidirectional"), .relu = parity_bool(c, "relu")),  \
                         1);                                                                                      \
    }                                                                                                             \
    PARITY_OP(name)
#define PARITY_CELL(name, kind)                                                                          \
    static void parity_##name(parity_call *c) {                                                          \
        parity_recurrent(c, kind(INT("input", 1), INT("hidden", 1), .relu = parity_bool(c, "relu")), 0); \
    }                                                                                                    \
    PARITY_OP(name)

PARITY_RNN(rnn, tt_nn_rnn)
PARITY_RNN(lstm, tt_nn_lstm)
PARITY_RNN(gru, tt_nn_gru)
PARITY_CELL(rnn_cell, tt_nn_rnn_cell)
PARITY_CELL(lstm_cell, tt_nn_lstm_cell)
PARITY_CELL(gru_cell, tt_nn_gru_cell)

static void parity_multihead_attention(parity_call *c) {
    tt_tensor **in = c->in, *weights = NULL;
    bool asked = parity_bool(c, "weights");
    tt_module *module = parity_module(c, tt_nn_multihead_attention(INT("width", 1), INT("heads", 1)), 5);
    parity_give(c, tt_multihead_attention(module, in[0], in[1], in[2], .key_padding_mask = in[3], .attn_mask = in[4],
                                          .weights = asked ? &weights : NULL));
    if (asked)
        parity_give(c, weights);
}
PARITY_OP(multihead_attention)

static void parity_transformer_encoder_layer(parity_call *c) {
    tt_module *module =
        parity_module(c,
                      tt_nn_transformer_encoder_layer(INT("width", 1), INT("heads", 1), INT("inner", 1), 0,
                                                      .norm_first = parity_bool(c, "norm_first"),
                                                      .gelu = parity_bool(c, "gelu"), .layer_norm_eps = 1e-2),
                      3);
    parity_give(c, tt_transformer_encoder(module, c->in[0], .mask = c->in[2], .src_key_padding_mask = c->in[1]));
}
PARITY_OP(transformer_encoder_layer)

#endif
