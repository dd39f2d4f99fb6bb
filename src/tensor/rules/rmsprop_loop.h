/* RMSprop for one element type: see rules.h. */

/* Inlined with constant flags, which makes one loop for each combination of them. */
RULE_LOOP void NAME(rmsprop_loop)(const tt__update *u, bool decay, bool centered, bool momentum) {
    const double *option = u->option;
    const REAL lr = -(REAL)option[TT__RMSPROP_LR], eps = (REAL)option[TT__RMSPROP_EPS];
    const REAL alpha = (REAL)option[TT__RMSPROP_ALPHA], rest = (REAL)(1 - option[TT__RMSPROP_ALPHA]);
    const REAL wd = (REAL)option[TT__RMSPROP_WEIGHT_DECAY], kept = (REAL)option[TT__RMSPROP_MOMENTUM];
    const REAL sign = option[TT__RMSPROP_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict square = (REAL *)u->state[TT__RMSPROP_SQUARE_AVG];
    REAL *restrict mean = (REAL *)u->state[TT__RMSPROP_GRAD_AVG];
    REAL *restrict buf = (REAL *)u->state[TT__RMSPROP_MOMENTUM_BUFFER];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        square[i] = FMA(rest * d, d, square[i] * alpha);
        REAL variance = square[i];
        if (centered) {
            mean[i] = FMA(d, rest, mean[i] * alpha);
            variance = FMA(-mean[i], mean[i], variance);
        }
        REAL root = SQRT(variance) + eps;
        if (momentum) {
            buf[i] = buf[i] * kept + d / root;
            p[i] = FMA(buf[i], lr, p[i]);
        } else {
            p[i] = p[i] + lr * d / root;
        }
    }
}

RULE void NAME(rmsprop)(const tt__update *u) {
    const bool centered = u->state[TT__RMSPROP_GRAD_AVG], momentum = u->state[TT__RMSPROP_MOMENTUM_BUFFER];
#define RMSPROP_WITH_DECAY(decay)                       \
    do {                                                \
        if (centered && momentum)                       \
            NAME(rmsprop_loop)(u, decay, true, true);   \
        else if (centered)                              \
            NAME(rmsprop_loop)(u, decay, true, false);  \
        else if (momentum)                              \
            NAME(rmsprop_loop)(u, decay, false, true);  \
        else                                            \
            NAME(rmsprop_loop)(u, decay, false, false); \
    } while (0)
    if (u->option[TT__RMSPROP_WEIGHT_DECAY] != 0)
        RMSPROP_WITH_DECAY(true);
    else
        RMSPROP_WITH_DECAY(false);
#undef RMSPROP_WITH_DECAY
}
