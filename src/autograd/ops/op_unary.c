/* Operators of one input, element by element: scale, dropout, and those that operators.def makes of a formula. */
#include "autograd/ops/op_pointwise.h"

#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "tensor/device/capture.h"

#include <math.h>

/* ---- y = x * factor    dx = g * factor */

static const char scale_name[] = "tt_scale";

static tt_status scale_backward(tt_node *node) {
    const double *factor = tt__state(node);
    TT__GIVE_OVER(node, 0, dx, tt__scale_out(scale_name, dx, tt__grad_of(node, 0), *factor));
    return TT_OK;
}

static const tt__operator scale_op = {.name = scale_name, .backward = scale_backward};

tt_tensor *tt_scale(tt_tensor *x, double factor) {
    if (!x || !TT__CHECK_FLOATS(scale_name, {"x", x}))
        return NULL;
    tt_tensor *y = tt__empty_like(scale_name, x);
    y = TT__MADE(scale_name, y, tt__scale_out(scale_name, y, x, factor));
    return tt__recorded(&scale_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(factor));
}

/* ---- y = x / (1 - p) where an element is kept, else 0    dx = g / (1 - p) where it was, else 0
 * Backward computes again from the key which elements are kept: no mask is stored. */

static const char dropout_name[] = "tt_dropout";

static tt_status dropout_backward(tt_node *node) {
    TT__GIVE_OVER(node, 0, dx, tt__dropout_out(dropout_name, dx, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator dropout_op = {.name = dropout_name, .backward = dropout_backward};

/* Draw a key for a replay, as a call that is not captured would. */
static void give_key(const tt__graph_source *source, uint64_t *words) {
    *words = tt_generator_random64(source->object);
}

static tt_status choose_key(tt__dropout *call, const tt_tensor *x, tt_generator *generator) {
    tt__graph *graph = tt__capturing(tt__device_of(x));
    const void *at = NULL;
    if (!graph) {
        call->key = tt_generator_random64(generator);
        return TT_OK;
    }
    const tt__graph_source source = {.object = generator, .words = 1, .give = give_key};
    TT__TRY(tt__graph_add(graph, &source, &at));
    call->key_at = at;
    return TT_OK;
}

/* With p = 1 all elements become 0: one number of 2^32 still keeps its element, which is then scaled by 0. */
static tt__dropout dropout_of(double p) {
    double limit = p * 0x1p32;
    return (tt__dropout){.limit = limit < 0x1p32 - 1 ? (uint32_t)limit : UINT32_MAX, .scale = p < 1 ? 1 / (1 - p) : 0};
}

tt_tensor *tt_dropout_with(const tt_dropout_args *args, size_t size) {
    tt_dropout_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.x || !TT__CHECK_FLOATS(dropout_name, {"x", o.x}))
        return NULL;
    if (!(o.p >= 0 && o.p <= 1))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected a probability p in 0..1, got %g", dropout_name, o.p);
    if (!o.training || o.p == 0)
        return o.x;
    tt__dropout call = dropout_of(o.p);
    if (choose_key(&call, o.x, o.generator))
        return tt__tensor_fail(tt_last_status(), "%s: %s", dropout_name, tt_last_error());
    tt_tensor *y = tt__empty_like(dropout_name, o.x);
    y = TT__MADE(dropout_name, y, tt__dropout_out(dropout_name, y, o.x, &call));
    return tt__recorded(&dropout_op, y, TT__INPUTS(o.x), TT__NO_SAVES, TT__STATE(call));
}

/* ---- of a formula: what each computes, forward and backward, is a line of tensor/ops/pointwise_formulas.h */

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

/* Operators for which their line of operators.def is enough. */
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
