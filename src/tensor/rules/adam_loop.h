/* Adam and AdamW for one element type. See rules.h. */

/* Inlined with constant flags, which makes one loop for each combination of them. */
RULE_LOOP void NAME(adam_loop)(const tt__update *u, bool decoupled, bool decay, bool amsgrad) {
    const double *option = u->option, lr = option[TT__ADAM_LR], weight_decay = option[TT__ADAM_WEIGHT_DECAY];
    const double beta1 = option[TT__ADAM_BETA1], beta2 = option[TT__ADAM_BETA2];
    const REAL b1 = (REAL)beta1, b2 = (REAL)beta2, rest1 = (REAL)(1 - beta1), rest2 = (REAL)(1 - beta2);
    const REAL size = (REAL) - (lr / (1 - u->power[0])), root = (REAL)sqrt(1 - u->power[1]);
    const REAL eps = (REAL)option[TT__ADAM_EPS], added = (REAL)weight_decay, kept = (REAL)(1 - lr * weight_decay);
    const REAL sign = option[TT__ADAM_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict m = (REAL *)u->state[TT__ADAM_EXP_AVG];
    REAL *restrict v = (REAL *)u->state[TT__ADAM_EXP_AVG_SQ];
    REAL *restrict most = (REAL *)u->state[TT__ADAM_MAX_EXP_AVG_SQ];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL x = decoupled ? p[i] * kept : p[i];
        REAL d = !decoupled && decay ? FMA(x, added, sign * g[i]) : sign * g[i];
        m[i] = FMA(d, rest1, m[i] * b1);
        v[i] = FMA(rest2 * d, d, v[i] * b2);
        REAL w = v[i];
        if (amsgrad) {
            w = w > most[i] || w != w ? w : most[i]; /* NaN stays, as torch.maximum's */
            most[i] = w;
        }
        p[i] = x + size * m[i] / (SQRT(w) / root + eps);
    }
}

RULE void NAME(adam)(const tt__update *u) {
    bool decay = u->option[TT__ADAM_WEIGHT_DECAY] != 0;
    if (u->state[TT__ADAM_MAX_EXP_AVG_SQ])
        NAME(adam_loop)(u, false, decay, true);
    else if (decay)
        NAME(adam_loop)(u, false, true, false);
    else
        NAME(adam_loop)(u, false, false, false);
}

RULE void NAME(adamw)(const tt__update *u) {
    if (u->state[TT__ADAM_MAX_EXP_AVG_SQ])
        NAME(adam_loop)(u, true, true, true);
    else
        NAME(adam_loop)(u, true, true, false);
}
