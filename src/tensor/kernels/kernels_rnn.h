/* Kernels of recurrent cells: a part of the list in kernels.h. B sequences, H hidden values; everything is contiguous,
 * but the rows of `gates` may lie further apart.
 *
 * A cell has G gates of H values each, in PyTorch's order: LSTM i, f, g, o; GRU r, z, n; the plain ones have one. Each
 * is made of two parts: x, which comes from the input, and the hidden part, from the state before. */
#ifndef TT_TENSOR_KERNELS_RNN_H
#define TT_TENSOR_KERNELS_RNN_H

#include <tutti/tensor.h>

typedef enum tt__cell { TT__CELL_TANH, TT__CELL_RELU, TT__CELL_LSTM, TT__CELL_GRU } tt__cell;

/* One step. Of `gates` (B,S) the first G H columns hold the hidden part without its bias, and are overwritten by what
 * backward reads: LSTM (S = 4 H) i, f, g, o; GRU (S = 4 H) r, z, n and the hidden part of n. The plain cells (S = H)
 * leave it alone; it may be y. */
typedef struct tt__cell_step {
    tt__cell cell;
    const tt_tensor *x, *bias; /* (B,G H), (G H) */
    const tt_tensor *h, *c;    /* (B,H): the state before; c: of an LSTM */
    tt_tensor *gates;
    tt_tensor *c_next; /* (B,H): of an LSTM */
} tt__cell_step;

/* What backward reads and writes, of one step. */
typedef struct tt__cell_grad {
    tt__cell cell;
    const tt_tensor *gates, *y, *h, *c, *c_next; /* as forward left them */
    const tt_tensor *g;                          /* (B,H): the gradient of y from outside */
    tt_tensor *dh;      /* (B,H): from later steps; a GRU leaves what goes to h past the weight */
    tt_tensor *dc;      /* (B,H): of c_next, becomes that of c; of an LSTM */
    tt_tensor *dhidden; /* (B,3 H): of the hidden part, where it is not that of x: of a GRU */
} tt__cell_grad;

/* With a = x + hidden + bias:
 * tanh, relu: y = tanh(a), max(a, 0).
 * LSTM: i, f, o = sigmoid(a), g = tanh(a); c_next = f c + i g; y = o tanh(c_next).
 * GRU: r, z = sigmoid(a); n = tanh(x + r (hidden + bias)); y = n + z (h - n).
 * rnn_cell_backward: dx (B,G H). */
#define TT__RNN_KERNELS(X)                                  \
    X(rnn_cell, (tt_tensor * y, const tt__cell_step *step)) \
    X(rnn_cell_backward, (tt_tensor * dx, const tt__cell_grad *grad))

#endif
