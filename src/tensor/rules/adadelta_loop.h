/* Adadelta for one element type: see rules.h. */

/* Inlined with a constant `decay`, which makes one loop for each of its values. */
RULE_LOOP void NAME(adadelta_loop)(const tt__update *u, bool decay) {
    const double *option = u->option;
    const REAL lr = -(REAL)option[TT__ADADELTA_LR], eps = (REAL)option[TT__ADADELTA_EPS];
    const REAL rho = (REAL)option[TT__ADADELTA_RHO], rest = (REAL)(1 - option[TT__ADADELTA_RHO]);
    const REAL wd = (REAL)option[TT__ADADELTA_WEIGHT_DECAY], sign = option[TT__ADADELTA_MAXIMIZE] != 0 ? -1 : 1;
    REAL *restrict p = (REAL *)u->p, *restrict square = (REAL *)u->state[TT__ADADELTA_SQUARE_AVG];
    REAL *restrict acc = (REAL *)u->state[TT__ADADELTA_ACC_DELTA];
    const REAL *restrict g = (const REAL *)u->g;
    for (int64_t i = RULE_FIRST; i < u->n; i += RULE_STRIDE) {
        REAL d = decay ? FMA(p[i], wd, sign * g[i]) : sign * g[i];
        square[i] = FMA(rest * d, d, square[i] * rho);
        REAL delta = SQRT(acc[i] + eps) / SQRT(square[i] + eps) * d;
        acc[i] = FMA(rest * delta, delta, acc[i] * rho);
        p[i] = FMA(delta, lr, p[i]);
    }
}

RULE void NAME(adadelta)(const tt__update *u) {
    if (u->option[TT__ADADELTA_WEIGHT_DECAY] != 0)
        NAME(adadelta_loop)(u, true);
    else
        NAME(adadelta_loop)(u, false);
}
