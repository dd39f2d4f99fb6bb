/* Kernels of operators that go element by element: see kernels.h. */
#ifndef TT_TENSOR_KERNELS_POINTWISE_H
#define TT_TENSOR_KERNELS_POINTWISE_H

#include "tensor/ops/pointwise_formulas.h"

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

#define TT__POINTWISE_KERNELS(X)                                                                                      \
    /* One shape; repeated inputs have strides of 0. y = formula of x; dx of v and g. */                              \
    X(unary, (tt_tensor * y, const tt_tensor *x, const tt__unary *call))                                              \
    X(unary_backward, (tt_tensor * dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call))                \
    /* y = formula of x and z; d, of input 0 (x) or 1 (z), of x, z and g. */                                          \
    X(binary, (tt_tensor * y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call))                        \
    X(binary_backward,                                                                                                \
      (tt_tensor * d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g, const tt__binary *call, int input)) \
    /* By the dtype of a, which b has: y (bool) = a op b. y = condition (bool) ? a : b. */                            \
    X(compare, (const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y))                             \
    X(where, (tt_tensor * y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b))                     \
    /* y = value where mask (bool) is `when`, else x. */                                                              \
    X(masked_fill, (tt_tensor * y, const tt_tensor *x, const tt_tensor *mask, bool when, double value))

#endif
