/* Recurrent layers over time (recurrence.c), on tensors without history. T steps, B sequences, H hidden values, G
 * gates: see kernels_rnn.h. */
#ifndef TT_TENSOR_OPS_RNN_H
#define TT_TENSOR_OPS_RNN_H

#include "tensor/kernels/kernels_rnn.h"

/* One layer in one direction. Everything is contiguous, on one device, of one dtype; T at least 1. */
typedef struct tt__rnn {
    tt__cell cell;
    bool reverse;             /* the last step comes first */
    const tt_tensor *x;       /* (T,B,G H): the input's part of the gates, with its bias */
    const tt_tensor *h0, *c0; /* (B,H): the state before; c0: of an LSTM */
    const tt_tensor *weight;  /* (G H,H): from a state to the hidden part */
    const tt_tensor *bias;    /* (G H) or NULL: zeros */
    tt_tensor *y;             /* (T,B,H) */
    tt_tensor *gates;         /* (T,B,4 H): what backward reads; of LSTM and GRU, else NULL */
    tt_tensor *c;             /* (T,B,H): of an LSTM, else NULL */
} tt__rnn;

/* The gradients that backward reads and writes. */
typedef struct tt__rnn_grads {
    const tt_tensor *g; /* (T,B,H): of y */
    tt_tensor *dh, *dc; /* (B,H): of the last state from outside, become those of h0 and c0; dc: of an LSTM */
    tt_tensor *dx;      /* (T,B,G H) */
    tt_tensor *dhidden; /* (T,B,3 H): of the hidden parts, of a GRU; else NULL */
} tt__rnn_grads;

/* How many gates the cell has. */
static inline int64_t tt__cell_gates(tt__cell cell) { return cell == TT__CELL_LSTM ? 4 : cell == TT__CELL_GRU ? 3 : 1; }

/* Compute y, gates and c / dx, dhidden, dh and dc, a product and a kernel for each step. */
tt_status tt__rnn_out(const char *who, const tt__rnn *r);
tt_status tt__rnn_backward_out(const char *who, const tt__rnn *r, const tt__rnn_grads *d);

/* dweight (G H,H) = what tt__rnn_backward_out() wrote, times the states before each step: one product of all. */
tt_status tt__rnn_weight_out(const char *who, tt_tensor *dweight, const tt__rnn *r, const tt__rnn_grads *d);

/* View step t of x (T,B,C) as (B,C). */
tt_tensor tt__time_step(const tt_tensor *x, int64_t t);

#endif
