/* The arithmetic of operators that go element by element: forward and backward, each in one place. The plain loops
 * compile it in double, the fast ones of the cpu in f32, with their own functions under these names:
 *   K(c) a constant   SELECT(condition, p, q)   EXP LOG LOG1P SQRT ABS TANH ERF POW
 * and those of pointwise_parts.h, which are made of them; gelu and the slopes may be others.
 * g is the gradient of the result; a and b are numbers of the call. */
#ifndef TT_TENSOR_POINTWISE_FORMULAS_H
#define TT_TENSOR_POINTWISE_FORMULAS_H

/* y from x. Backward has v: x (INPUT), y (RESULT), or nothing of use (NOTHING).
 * X(name, what v is, y, dx) */
#define TT__UNARY_FORMULAS(X)                                                                 \
    X(EXP, RESULT, EXP(x), g *v)                                                              \
    X(SQRT, RESULT, SQRT(x), g / (K(2.0) * v))                                                \
    X(ABS, INPUT, ABS(x), g *SIGN(v))                                                         \
    X(NEG, NOTHING, -x, -g)                                                                   \
    X(RECIPROCAL, RESULT, K(1.0) / x, -g * v * v)                                             \
    X(SQUARE, INPUT, x *x, K(2.0) * g * v)                                                    \
    X(CUBE, INPUT, x *x *x, K(3.0) * g * v * v)                                               \
    X(ADD_SCALAR, NOTHING, x + a, g)                                                          \
    X(TANH, RESULT, TANH(x), g *(K(1.0) - v * v))                                             \
    X(SIGMOID, RESULT, SIGMOID(x), g *v *(K(1.0) - v))                                        \
    X(SILU, INPUT, x / (K(1.0) + EXP(-x)), g * SILU_SLOPE(v))                                 \
    X(GELU, INPUT, GELU(x), g *GELU_SLOPE(v))                                                 \
    X(GELU_TANH, INPUT, GELU_TANH(x), g *GELU_TANH_SLOPE(v))                                  \
    X(LEAKY_RELU, INPUT, SELECT(x > 0, x, x * a), SELECT(v > 0, g, g * a))                    \
    X(CLAMP, INPUT, SELECT(x < a, a, SELECT(x > b, b, x)), SELECT(v > a && v < b, g, K(0.0))) \
    X(LOG, INPUT, LOG(x), g / v)

/* The same, where f32 is computed in double, too. */
#define TT__UNARY_PLAIN_FORMULAS(X)                                         \
    X(POW, INPUT, POW(x, a), SELECT(a == 0, K(0.0), g * a * POW(v, a - 1))) \
    X(LOG1P, INPUT, LOG1P(x), g / (K(1.0) + v))                             \
    X(RSQRT, INPUT, K(1.0) / SQRT(x), K(-0.5) * g * POW(v, K(-1.5)))        \
    /* -log sigmoid(x): what a target of 1 costs */                         \
    X(LOGIT_COST, INPUT, LOG1P(EXP(-ABS(x))) - SELECT(x > 0, K(0.0), x), -g * SIGMOID(-v))

/* y from x and z.  X(name, y, dx, dz) */
#define TT__BINARY_FORMULAS(X)                                                                          \
    X(MUL, x *z, g *z, g *x)                                                                            \
    X(DIV, x / z, g / z, -g * ((x / z) / z))                                                            \
    X(MAXIMUM, SELECT(x > z || x != x, x, z), SELECT(x < z, K(0.0), SELECT(x == z, g * K(0.5), g)),     \
      SELECT(x > z, K(0.0), SELECT(x == z, g * K(0.5), g)))                                             \
    X(MINIMUM, SELECT(x < z || x != x, x, z), SELECT(x > z, K(0.0), SELECT(x == z, g * K(0.5), g)),     \
      SELECT(x < z, K(0.0), SELECT(x == z, g * K(0.5), g)))                                             \
    /* losses: x input, z target */                                                                     \
    X(SQUARE_LOSS, (x - z) * (x - z), K(2.0) * (x - z) * g, K(2.0) * (z - x) * g)                       \
    X(ABS_LOSS, ABS(x - z), SIGN(x - z) * g, SIGN(z - x) * g)                                           \
    X(SMOOTH_ABS_LOSS, SELECT(ABS(x - z) < a, K(0.5) * (x - z) * (x - z) / a, ABS(x - z) - K(0.5) * a), \
      SELECT(ABS(x - z) >= a, SIGN(x - z), (x - z) / a) * g, SELECT(ABS(x - z) >= a, SIGN(z - x), (z - x) / a) * g)

/* The same, where f32 is computed in double, too. */
#define TT__BINARY_PLAIN_FORMULAS(X)                                                                               \
    X(POWER, POW(x, z), SELECT(z == 0, K(0.0), g * z * POW(x, z - 1)),                                             \
      SELECT(x == 0 && z >= 0, K(0.0), g * POW(x, z) * LOG(x)))                                                    \
    /* logit x, target z: -z log sigmoid(x) - (1 - z) log sigmoid(-x), as (1 - z) x - log sigmoid(x) */            \
    X(LOGIT_LOSS, (K(1.0) - z) * x + LOG1P(EXP(-ABS(x))) - SELECT(x > 0, K(0.0), x), (SIGMOID(x) - z) * g, -x * g) \
    X(LOGIT_REST, (K(1.0) - z) * x, (K(1.0) - z) * g, -x * g)                                                      \
    /* log probability x, probability z: z log z - z x, where 0 log 0 is 0; or z is a logarithm, too */            \
    X(KL_DIV, SELECT(z == 0, K(0.0), z * LOG(z)) - z * x, -z * g, (LOG(z) + z / z - x) * g)                        \
    X(KL_DIV_LOG, EXP(z) * (z - x), -EXP(z) * g, EXP(z) * (z - x) * g + EXP(z) * g)

#endif
