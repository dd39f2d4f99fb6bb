/* What calls of kernels (kernels.h) carry besides their operands: which formula, options, and structures of several
 * operands. CUDA kernels include this file, and so it has to compile as C++. */
#ifndef TT_TENSOR_CALLS_H
#define TT_TENSOR_CALLS_H

#include "tensor/ops/pointwise_formulas.h"

#include <tutti/tensor.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- element by element */

/* Which formula, and its numbers. */
typedef enum tt__unary_op {
#define TT__UNARY_ENUM(name, saves, forward, backward) TT__##name,
    TT__UNARY_FORMULAS(TT__UNARY_ENUM) TT__UNARY_PLAIN_FORMULAS(TT__UNARY_ENUM)
#undef TT__UNARY_ENUM
        TT__UNARY_OPS
} tt__unary_op;

typedef struct tt__unary {
    tt__unary_op op;
    double a, b;
} tt__unary;

typedef enum tt__binary_op {
#define TT__BINARY_ENUM(name, forward, dx, dz) TT__##name,
    TT__BINARY_FORMULAS(TT__BINARY_ENUM) TT__BINARY_PLAIN_FORMULAS(TT__BINARY_ENUM)
#undef TT__BINARY_ENUM
        TT__BINARY_OPS
} tt__binary_op;

typedef struct tt__binary {
    tt__binary_op op;
    double a;
} tt__binary;

typedef enum tt__comparison { TT__EQ, TT__NE, TT__LT, TT__LE, TT__GT, TT__GE } tt__comparison;

/* ---- attention, resize */

typedef struct tt__attention {
    const struct tt_tensor *q, *k, *v; /* (T,D), (S,D), (S,Dv) */
    const struct tt_tensor *mask;      /* (T,S), added to the scores; any layout; NULL: none */
    const struct tt_tensor *y;         /* backward: what forward made; NULL: it was not kept */
    double scale;
    bool causal; /* row t sees the first t + 1 */
} tt__attention;

typedef struct tt__resize {
    bool nearest;       /* else bilinear */
    bool align_corners; /* the image ends at the middles of its outer elements, not at their edges */
} tt__resize;

/* ---- losses */

/* Options of the negative log likelihood. */
typedef struct tt__nll {
    int64_t ignore;   /* rows whose target is this one cost nothing */
    double smoothing; /* this share of the target is divided among all classes */
} tt__nll;

/* ---- convolutions, pooling */

/* How a window moves over images: {along H, along W}. */
typedef struct tt__window {
    int64_t stride[2], padding[2], dilation[2];
} tt__window;

typedef struct tt__conv {
    tt__window window;
    int64_t groups;
} tt__conv;

typedef struct tt__pooling {
    tt__window window;
    int64_t size[2];      /* of the window */
    bool exclude_padding; /* avg_pool2d: divide by the elements inside the image */
    int64_t divisor;      /* avg_pool2d: divide by this; 0: as exclude_padding says */
} tt__pooling;

/* ---- normalisation */

/* Which elements of a row (R rows of n) have which weight: element i of row r has number
 * (r % groups) * (n / share) + i / share. */
typedef struct tt__row_norm {
    double eps;
    bool no_mean; /* the root mean square takes the place of the deviation */
    int64_t groups, share;
} tt__row_norm;

/* What backward reads. */
typedef struct tt__normed {
    const tt_tensor *g, *x, *mean, *rstd, *weight;
} tt__normed;

/* ---- recurrent cells. B sequences, H hidden values
 *
 * A cell has G gates of H values each, in PyTorch's order: LSTM i, f, g, o; GRU r, z, n; the plain ones have one. Each
 * is made of two parts: x, which comes from the input, and the hidden part, from the state before. */

typedef enum tt__cell { TT__CELL_TANH, TT__CELL_RELU, TT__CELL_LSTM, TT__CELL_GRU } tt__cell;

/* One step. Of `gates` (B,S) the first G H columns hold the hidden part without its bias, and are overwritten by what
 * backward reads: LSTM (S = 4 H) i, f, g, o; GRU (S = 4 H) r, z, n and the hidden part of n. The plain cells (S = H)
 * leave `gates` alone; it may be y. */
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
    /* (B,H): of y from later steps; with a GRU it becomes the part of h's gradient that bypasses the weight */
    tt_tensor *dh;
    tt_tensor *dc;      /* (B,H), of an LSTM: of c_next, becomes that of c */
    tt_tensor *dhidden; /* (B,3 H), of a GRU: of the hidden part, where it differs from that of x */
} tt__cell_grad;

/* ---- dropout */

/* Element i is kept if word i % 4 of Philox's counter i / 4 under this key is at least `limit`. */
typedef struct tt__dropout {
    uint64_t key;
    uint32_t limit;         /* p * 2^32 */
    double scale;           /* of what is kept */
    const uint64_t *key_at; /* on the device: the key of a captured call; NULL: `key` is it */
} tt__dropout;

#endif
