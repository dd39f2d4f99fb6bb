/* Operators of one input, element by element. What each computes, forward and backward, is a line of
 * tensor/ops/pointwise_formulas.h, and which there are of operators.def. */
#include "autograd/ops/pointwise/op_unary.h"

#include "base/args.h"
#include "base/error.h"

#include <math.h>

/* What backward needs of a call, by formula. */
typedef enum saves { INPUT, RESULT, NOTHING } saves;
static const saves saves_of[] = {
#define SAVES_OF(name, saves, forward, backward) [TT__##name] = saves,
    TT__UNARY_FORMULAS(SAVES_OF) TT__UNARY_PLAIN_FORMULAS(SAVES_OF)
#undef SAVES_OF
};

/* State: the call. Saved: x or y, if any. */
tt_status tt__unary_backward(tt_node *node) {
    const tt__unary *call = tt__state(node);
    const tt_tensor *g = tt__grad_of(node, 0), *v = saves_of[call->op] == NOTHING ? g : tt__saved(node, 0);
    if (!v)
        return tt_last_status();
    TT__GIVE_OVER(node, 0, dx, tt__unary_backward_out(node->op->name, dx, v, g, call));
    return TT_OK;
}

tt_tensor *tt__unary_recorded(const tt__operator *op, tt_tensor *x, tt__unary call) {
    if (!x || !TT__CHECK_FLOATS(op->name, {"x", x}))
        return NULL;
    tt_tensor *y = tt__empty_like(op->name, x);
    y = TT__MADE(op->name, y, tt__unary_out(op->name, y, x, &call));
    const tt_tensor *v = saves_of[call.op] == INPUT ? x : saves_of[call.op] == RESULT ? y : NULL;
    return tt__recorded(op, y, TT__INPUTS(x), TT__SAVES({v, v == x ? "x" : "its result"}), TT__STATE(call));
}

/* static const tt__operator exp_op, called "tt_exp" */
#define OPERATOR_OF(called) \
    static const tt__operator called##_op = {.name = "tt_" #called, .backward = tt__unary_backward}

/* All that need no more than their line of operators.def. */
#define UNARY(called, formula, ...)                                                   \
    OPERATOR_OF(called);                                                              \
    tt_tensor *tt_##called(tt_tensor *x) {                                            \
        return tt__unary_recorded(&called##_op, x, (tt__unary){.op = TT__##formula}); \
    }
#include "autograd/operators.def"

/* ---- with numbers */

OPERATOR_OF(gelu);
OPERATOR_OF(leaky_relu);
OPERATOR_OF(clamp);
OPERATOR_OF(add_scalar);
OPERATOR_OF(pow);

tt_tensor *tt_gelu_with(const tt_gelu_args *args, size_t size) {
    tt_gelu_args o;
    TT__ARGS_COPY(o, args, size);
    return tt__unary_recorded(&gelu_op, o.x, (tt__unary){.op = o.tanh ? TT__GELU_TANH : TT__GELU});
}

tt_tensor *tt_leaky_relu(tt_tensor *x, double negative_slope) {
    return tt__unary_recorded(&leaky_relu_op, x, (tt__unary){.op = TT__LEAKY_RELU, .a = negative_slope});
}

tt_tensor *tt_clamp(tt_tensor *x, double min, double max) {
    if (x && (isnan(min) || isnan(max)))
        return tt__tensor_fail(TT_ERR_INVALID, "tt_clamp: expected numbers as bounds, got %g and %g", min, max);
    return tt__unary_recorded(&clamp_op, x, (tt__unary){.op = TT__CLAMP, .a = min < max ? min : max, .b = max});
}

tt_tensor *tt_add_scalar(tt_tensor *x, double number) {
    return tt__unary_recorded(&add_scalar_op, x, (tt__unary){.op = TT__ADD_SCALAR, .a = number});
}

/* Exponents that need no logarithm have formulas of their own. */
static tt__unary_op pow_formula(double exponent) {
    return exponent == 2      ? TT__SQUARE
           : exponent == 3    ? TT__CUBE
           : exponent == 0.5  ? TT__SQRT
           : exponent == -0.5 ? TT__RSQRT
           : exponent == -1   ? TT__RECIPROCAL
                              : TT__POW;
}

tt_tensor *tt_pow(tt_tensor *x, double exponent) {
    return tt__unary_recorded(&pow_op, x, (tt__unary){.op = pow_formula(exponent), .a = exponent});
}
