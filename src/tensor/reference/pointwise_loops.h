/* The formulas of pointwise_formulas.h, in double, for one type of float: included by float_loops.h. */
#include "tensor/ops/pointwise_parts.h"

#define K(c) (c)
#define SELECT(condition, p, q) ((condition) ? (p) : (q))
#define EXP exp
#define LOG log
#define LOG1P log1p
#define SQRT sqrt
#define ABS fabs
#define TANH tanh
#define ERF erf
#define POW pow

/* ---- one input */

static double unary_value(const tt__unary *call, double x) {
    double a = call->a, b = call->b;
    (void)b;
    switch (call->op) {
#define UNARY_CASE(name, saves, forward, backward) \
    case TT__##name:                               \
        return forward;
        TT__UNARY_FORMULAS(UNARY_CASE)
        TT__UNARY_PLAIN_FORMULAS(UNARY_CASE)
#undef UNARY_CASE
    case TT__UNARY_OPS:
        break;
    }
    return a;
}

static double unary_gradient(const tt__unary *call, double v, double g) {
    double a = call->a, b = call->b;
    switch (call->op) {
#define UNARY_CASE(name, saves, forward, backward) \
    case TT__##name:                               \
        return backward;
        TT__UNARY_FORMULAS(UNARY_CASE)
        TT__UNARY_PLAIN_FORMULAS(UNARY_CASE)
#undef UNARY_CASE
    case TT__UNARY_OPS:
        break;
    }
    return b;
}

static tt_status ref_unary(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(unary_value(call, (double)LOAD(AT(1, i))));
    return TT_OK;
}

static tt_status ref_unary_backward(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call) {
    for (tt__iter it = TT__ITER_OVER(dx, v, g); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(unary_gradient(call, (double)LOAD(AT(1, i)), (double)LOAD(AT(2, i))));
    return TT_OK;
}

/* ---- two inputs */

static double binary_value(const tt__binary *call, double x, double z) {
    double a = call->a;
    switch (call->op) {
#define BINARY_CASE(name, forward, dx, dz) \
    case TT__##name:                       \
        return forward;
        TT__BINARY_FORMULAS(BINARY_CASE)
        TT__BINARY_PLAIN_FORMULAS(BINARY_CASE)
#undef BINARY_CASE
    case TT__BINARY_OPS:
        break;
    }
    return a;
}

static double binary_gradient(const tt__binary *call, int input, double x, double z, double g) {
    double a = call->a;
    switch (call->op) {
#define BINARY_CASE(name, forward, dx, dz) \
    case TT__##name:                       \
        return input == 0 ? (dx) : (dz);
        TT__BINARY_FORMULAS(BINARY_CASE)
        TT__BINARY_PLAIN_FORMULAS(BINARY_CASE)
#undef BINARY_CASE
    case TT__BINARY_OPS:
        break;
    }
    return a;
}

static tt_status ref_binary(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call) {
    for (tt__iter it = TT__ITER_OVER(y, x, z); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(binary_value(call, (double)LOAD(AT(1, i)), (double)LOAD(AT(2, i))));
    return TT_OK;
}

static tt_status ref_binary_backward(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                     const tt__binary *call, int input) {
    for (tt__iter it = TT__ITER_OVER(d, x, z, g); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(
                binary_gradient(call, input, (double)LOAD(AT(1, i)), (double)LOAD(AT(2, i)), (double)LOAD(AT(3, i))));
    return TT_OK;
}

#define POINTWISE_KERNELS                                                           \
    .unary = ref_unary, .unary_backward = ref_unary_backward, .binary = ref_binary, \
    .binary_backward = ref_binary_backward
