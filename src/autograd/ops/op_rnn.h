/* One layer of a recurrent network in one direction, recorded; for the modules that are made of such layers. */
#ifndef TT_AUTOGRAD_OP_RNN_H
#define TT_AUTOGRAD_OP_RNN_H

#include "tensor/kernels/kernels_calls.h"

#include <tutti/tensor.h>

/* T steps, B sequences, H hidden values, G gates (kernels_calls.h). Shapes have been checked; T is at least 1. */
typedef struct tt__rnn_call {
    tt__cell cell;
    bool reverse;      /* the last step comes first */
    tt_tensor *x;      /* (T,B,G H): the input's part of the gates, with its bias */
    tt_tensor *h0;     /* (B,H) */
    tt_tensor *c0;     /* (B,H): of an LSTM, else NULL */
    tt_tensor *weight; /* (G H,H): weight_hh */
    tt_tensor *bias;   /* (G H): bias_hh, or NULL */
} tt__rnn_call;

/* Make the states of all steps, *y (T,B,H), and, of an LSTM, *c_n (B,H), the last cell state. NULL among the inputs:
 * an error, as with tt_item(). After a failure both are NULL. */
tt_status tt__rnn_layer(const tt__rnn_call *call, tt_tensor **y, tt_tensor **c_n);

#endif
